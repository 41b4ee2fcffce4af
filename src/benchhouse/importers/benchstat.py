"""Go: the output of `go test -bench`, which benchstat reads. Repetitions (`-count`) are the samples."""

import re
from collections import defaultdict
from typing import Any

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.experiment import Direction, Metric
from benchhouse.schema.imported import Imported, ImportedCase, Setting, their

TOOL = "go"
_OP = "an operation: the mean over the iterations of a repetition; single operations are not in the file"
_METRICS = {
    "ns/op": their(TOOL, "time_ns", "ns", f"wall time of {_OP}", "lower", "latency"),
    "B/op": their(TOOL, "allocated_bytes", "B", f"memory allocated by {_OP}", "lower"),
    "allocs/op": their(TOOL, "allocations", "1", f"allocations by {_OP}", "lower"),
    "MB/s": their(
        TOOL, "mb_per_s", "MB/s", "bytes of a repetition, 10^6 bytes / its wall time", "higher", "throughput"
    ),
}
_FAILED = their(TOOL, "error_rate", "1", "repetitions that failed / all", "lower", "error_rate")
_CONFIG = re.compile(r"([a-z][^\sA-Z:]*):[ \t]+(.+)")
_FAIL = re.compile(r"(?:.*\s)?--- FAIL: Benchmark(\S+).*")
_PROCS = re.compile(r"(.+)-(\d{1,4})")
_RESULT = re.compile(rb"^Benchmark[^\sa-z]\S*[ \t]+\d+[ \t]+\S+ ns/op", re.MULTILINE)


def claims(head: bytes, name: str) -> bool:
    return _RESULT.search(head) is not None


def read(file: ForeignFile) -> Imported:
    found: dict[tuple[str | None, str], _Benchmark] = defaultdict(_Benchmark)
    config: dict[str, str] = {}
    better: dict[str, Direction] = {}
    broken = ""
    for number, line in file.texts():
        fields = line.split()
        if failed := _FAIL.fullmatch(line):
            found[config.get("pkg"), failed[1]].failed += 1
        elif line.startswith("Benchmark") and len(fields) > 1:  # a name alone is the announcement of -v
            if len(fields) % 2 or len(fields) < 4:
                file.problem("not a result; did the benchmark print something within its line?", number)
            found[config.get("pkg"), fields[0].removeprefix("Benchmark")].add(file, number, fields, config)
        elif fields[:1] == ["Unit"] and len(fields) > 2:
            for word in fields[2:]:
                if word in ("better=higher", "better=lower"):
                    better[fields[1]] = "higher" if word.endswith("higher") else "lower"
        elif fields[:1] in (["FAIL"], ["panic:"]):
            broken = broken or line
        elif setting := _CONFIG.fullmatch(line):
            config[setting[1]] = setting[2]
    if not found:
        file.problem("there is no result of a benchmark in it")
    cases = [benchmark.case(pkg, name, better) for (pkg, name), benchmark in found.items()]
    for case in cases if broken else ():
        case.doubts.append(("go_test_failed", f"go test says {broken[:60]!r}: benchmarks may be missing"))
    return Imported(TOOL, None, cases)


class _Benchmark:
    """The results of one benchmark, collected from its lines."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = defaultdict(list)
        self.iterations: list[float] = []
        self.facts: dict[str, Any] = {}
        self.failed = 0

    def add(self, file: ForeignFile, line: int, fields: list[str], config: dict[str, str]) -> None:
        self.iterations.append(file.number(fields[1], "iterations", line))
        for text, unit in zip(fields[2::2], fields[3::2], strict=True):
            self.values[unit].append(file.number(text, unit, line))
        self.facts = {key: value for key, value in config.items() if key != "pkg"}

    def case(self, pkg: str | None, name: str, better: dict[str, Direction]) -> ImportedCase:
        """Return the case. GOMAXPROCS is the suffix of a name; Go omits it if it is 1, or if the benchmark failed at
        once.
        """
        numbered = _PROCS.fullmatch(name)
        single = 1 if self.iterations else None
        settings: dict[str, Setting] = {"pkg": pkg, "gomaxprocs": int(numbered[2]) if numbered else single}
        case = ImportedCase({"name": numbered[1] if numbered else name}, settings, facts=self.facts)
        for unit, values in self.values.items():
            case.add(_METRICS.get(unit) or _reported(unit, better.get(unit)), values)
        case.add_figure(_FAILED, self.failed / (self.failed + len(self.iterations)))
        case.facts["iterations"] = self.iterations
        case.missing["tool's own figures"] = "go test prints none: benchstat makes them"
        return case


def _reported(unit: str, direction: Direction | None) -> Metric:
    """Return the metric, named by its unit, that the benchmark reports itself."""
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", unit)
    return their(TOOL, f"reported.{clean}"[:60], unit, f"{unit}, which the benchmark reports", direction)


BENCHSTAT = Importer("go test -bench, the text that benchstat reads", claims, read)
