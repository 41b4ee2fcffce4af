"""wrk and wrk2: their printed output, with percentiles if they ran with `--latency`."""

import re

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Role
from benchhouse.schema.imported import Imported, ImportedCase, their

_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_BYTES = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40, "PB": 2.0**50}
_SENT = "from the send of a request to the end of its answer"
_FROM = {
    "wrk": f"{_SENT}, failed ones too, but for answers slower than --timeout; wrk 4 adds values that it did "
    "not measure, where a slow answer held other requests back (coordinated omission)",
    "wrk2": "from the time at which a request was due at the rate (-R) to the end of its answer, failed ones too",
}
_TITLE = re.compile(r"Running (\S+) test @ (.+)")
_LOAD = re.compile(r"  (\d{1,9}) threads and (\d{1,9}) connections")
_LATENCY = re.compile(r"    Latency\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+")
_PERCENTILE = re.compile(r"\s+([\d.]{1,9})%\s+(\S+)")
_REQUESTS = re.compile(r"  (\S+) requests in \S+, \S+ read")
_SOCKETS = re.compile(r"  Socket errors: connect (\S+), read (\S+), write (\S+), timeout (\S+)")
_STATUS = re.compile(r"  Non-2xx or 3xx responses: (\S+)")
_RATE = re.compile(r"(Requests|Transfer)/sec:\s+(\S+)")


def claims(head: bytes, name: str) -> bool:
    return re.search(rb"^Running \S+ test @ .+\n  \d+ threads and \d+ connections$", head, re.MULTILINE) is not None


def read(file: ForeignFile) -> Imported:
    outputs = list[_Output]()
    for number, line in file.texts():
        if title := _TITLE.fullmatch(line):
            outputs.append(_Output(file, number, title[1], title[2]))
        elif outputs:
            outputs[-1].take(number, line)
    if not outputs:
        file.problem("no line 'Running ... test @ URL' in it")
    tool = "wrk2" if any(output.wrk2 for output in outputs) else "wrk"
    return Imported(tool, None, [output.case(tool) for output in outputs])


class _Output:
    """The output of one run; a file may have several."""

    def __init__(self, file: ForeignFile, line: int, duration: str, url: str) -> None:
        self._file, self._line = file, line
        self._case = ImportedCase({"name": url}, {"duration": duration})
        self._figures: dict[str, float] = {"status": 0.0, "sockets": 0.0}
        self._latencies: dict[str, float] = {}
        self._prefix = "latency"
        self.wrk2 = False

    def take(self, number: int, line: str) -> None:
        if load := _LOAD.fullmatch(line):
            self._case.settings |= {"threads": int(load[1]), "connections": int(load[2])}
        elif "(HdrHistogram - " in line or line.startswith("  Thread calibration:"):
            self.wrk2 = True
            self._prefix = "uncorrected_latency" if "Uncorrected" in line else self._prefix
        elif latency := _LATENCY.fullmatch(line):
            for stat, text in zip(("mean", "stdev", "max"), latency.groups(), strict=True):
                self._latencies[f"latency_{stat}_ms"] = self._amount(text, _MS, number)
        elif percentile := _PERCENTILE.fullmatch(line):
            share = self._file.number(percentile[1], "percentile", number)
            self._latencies[f"{self._prefix}_p{share:g}_ms"] = self._amount(percentile[2], _MS, number)
        elif requests := _REQUESTS.fullmatch(line):
            self._figures["requests"] = self._file.number(requests[1], "requests", number)
        elif errors := _SOCKETS.fullmatch(line):
            self._figures["sockets"] = sum(self._file.number(text, "socket errors", number) for text in errors.groups())
        elif status := _STATUS.fullmatch(line):
            self._figures["status"] = self._file.number(status[1], "responses", number)
        elif (rate := _RATE.fullmatch(line)) and rate[1] == "Requests":
            self._figures["rate"] = self._file.number(rate[2], "Requests/sec", number)
        elif rate:
            self._figures["bytes"] = self._amount(rate[2], _BYTES, number)

    def _amount(self, text: str, units: dict[str, float], line: int) -> float:
        number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
        if (unit := text[len(number) :]) not in units:
            self._file.problem(f"expected a number and one of {', '.join(units)}, found {text[:60]!r}", line)
        return self._file.number(number, "amount", line) * units[unit]

    def case(self, tool: str) -> ImportedCase:
        case, found = self._case, self._figures
        if not {"requests", "rate", "bytes"} <= found.keys():
            self._file.problem("this run has no Requests/sec and Transfer/sec: did it end?", self._line)
        for name, value in self._latencies.items() if found["requests"] else ():
            means = _SENT if name.startswith("uncorrected") else _FROM[tool]
            role: Role | None = "latency" if name == "latency_p50_ms" else None
            case.add_figure(their(tool, name, "ms", f"{means}, as {tool} prints it", "lower", role), value)
        for name, unit, formula, value in (
            ("requests_per_s", "1/s", "answers, failed ones too / seconds of the test", found["rate"]),
            ("bytes_per_s", "B/s", "bytes read / seconds of the test", found["bytes"]),
        ):
            role = "throughput" if name == "requests_per_s" else None
            case.add_figure(their(tool, name, unit, f"{formula}, as {tool} prints it", "higher", role), value)
        case.add_figure(
            their(tool, "error_rate", "1", "answers with a status of 400 or more / answers", "lower", "error_rate"),
            found["status"] / found["requests"] if found["requests"] else None, "there was no answer",
        )  # fmt: skip
        case.add_figure(
            their(tool, "socket_errors", "1", "connect, read, write and timeout", "lower"), found["sockets"]
        )
        if "latency_p50_ms" not in self._latencies:
            case.missing["percentiles"] = f"{tool} prints them with --latency"
        case.missing["samples"] = f"{tool} prints none"
        return case


WRK = Importer("wrk and wrk2 [--latency], what they print", claims, read)
