"""pgbench: the log of each transaction, an output of `pgbench --log`."""

import re
from array import array
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.documents.foreign_file import ForeignFile, Importer
from benchhouse.schema.imported import Imported, ImportedCase, their

TOOL = "pgbench"
_LINE = re.compile(
    rb"(\d+) (\d+) (\d+|skipped|failed|serialization|deadlock) (\d+) (\d{9,11}) (\d{1,6})(?: (\d+))?(?: (\d+))?"
)
_NUMBERED = re.compile(r".+\.\d+")
_MOST_TRIES = 1000  # per transaction: a higher number in a line is not a number of tries, but microseconds
LATENCY = their(
    TOOL, "latency_ms", "ms",
    "of a transaction that did not fail, from its start to the end of its last answer, all its tries; at a rate (-R) "
    "from the time at which it was to start; the wait for a connection is not in it",
    "lower", "latency",
)  # fmt: skip
LAG = their(TOOL, "schedule_lag_ms", "ms", "at a rate (-R): by how much a transaction began late", "lower")
RETRIES = their(TOOL, "retries", "1", "tries of a transaction that did not fail, after the first", "lower")
TPS = their(
    TOOL, "transactions_per_s", "1/s",
    "transactions that did not fail / seconds from the start of the first that the log has to the end of the last",
    "higher", "throughput",
)  # fmt: skip
SKIPPED = their(TOOL, "skipped_share", "1", "at a rate: transactions skipped as they were too late (-L) / all", "lower")
FAILED = their(
    TOOL, "error_rate", "1", "transactions that failed in the end / all that were not skipped", "lower", "error_rate"
)


def claims(head: bytes, name: str) -> bool:
    first = head.split(b"\n", 3)[:-1][:3]
    return bool(first) and all(_LINE.fullmatch(line) for line in first)


def parts(path: Path) -> list[Path]:
    """Return `pgbench_log.PID` and the files of further threads, `pgbench_log.PID.1`, for any of these files."""
    if _NUMBERED.fullmatch(path.stem) and path.with_suffix("").is_file():
        path = path.with_suffix("")
    if not _NUMBERED.fullmatch(path.name):
        return [path]
    others = (item for item in path.parent.iterdir() if item.stem == path.name and item.suffix[1:].isdigit())
    return [path, *sorted(others, key=lambda item: int(item.suffix[1:]))]


def read(file: ForeignFile) -> Imported:
    by_script: dict[int, _Script] = {}
    logged, ran = Counter[bytes](), dict[bytes, int]()
    for part in file.parts:
        for number, line in part.lines():
            found = _LINE.fullmatch(line)
            if found is None:
                part.problem("not a line of a transaction log (aggregated logs have no samples)", number)
            by_script.setdefault(int(found[4]), _Script()).add(found)
            logged[found[1]] += 1
            ran[found[1]] = max(ran.get(found[1], 0), int(found[2]))
    sampled = any(ran[client] > logged[client] for client in logged)
    cases = [script.case(number, sampled) for number, script in sorted(by_script.items())]
    begun = min((script.first for script in by_script.values()), default=0.0)
    when = datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds") if begun else None
    return Imported(TOOL, None, cases, when)


class _Script:
    """The transactions of one script in the log."""

    def __init__(self) -> None:
        self.latencies, self.seventh, self.eighth = array("d"), array("d"), array("d")
        self.skipped = self.failed = 0
        self.clients = set[int]()
        self.first, self.last = float("inf"), 0.0

    def add(self, line: "re.Match[bytes]") -> None:
        client, _, took, _, seconds, microseconds, seventh, eighth = line.groups()
        self.clients.add(int(client))
        if took == b"skipped":
            self.skipped += 1
            return
        end = int(seconds) + int(microseconds) / 1e6
        if not took.isdigit():
            self.failed += 1
            return
        latency_us = int(took)
        self.latencies.append(latency_us / 1e3)
        self.first, self.last = min(self.first, end - latency_us / 1e6), max(self.last, end)
        if seventh is not None:
            self.seventh.append(int(seventh))
        if eighth is not None:
            self.eighth.append(int(eighth))

    def case(self, number: int, sampled: bool) -> ImportedCase:
        case = ImportedCase({"name": f"script {number}"}, {"clients": len(self.clients)})
        case.add(LATENCY, self.latencies)
        elapsed = self.last - self.first
        if sampled:
            case.missing[TPS.name] = "the log has some of the transactions alone (--sampling-rate)"
        else:
            case.add_figure(TPS, len(self.latencies) / elapsed if elapsed > 0 else None, "the log spans no time")
        self._add_further(case)
        done = len(self.latencies) + self.failed
        if self.failed:
            case.add_figure(FAILED, self.failed / done)
        else:
            case.missing[FAILED.name] = "the log has none that failed; before version 15, pgbench does not log them"
        case.missing["tool's own figures"] = "pgbench prints them and does not log them"
        return case

    def _add_further(self, case: ImportedCase) -> None:
        """Add the lag if there is a rate (-R), and retries with --max-tries; a single column is identified only by its
        size.
        """
        if self.eighth or self.skipped or max(self.seventh, default=0) > _MOST_TRIES:
            case.add(LAG, (lag_us / 1e3 for lag_us in self.seventh))
            case.add_figure(SKIPPED, self.skipped / (len(self.latencies) + self.failed + self.skipped))
        elif self.seventh:
            why = "the log has one further column, and does not say whether of lags (-R) or of retries (--max-tries)"
            case.missing |= {LAG.name: why, RETRIES.name: why}
        if self.eighth:
            case.add(RETRIES, self.eighth)


PGBENCH = Importer("pgbench --log, each transaction", claims, read, parts)
