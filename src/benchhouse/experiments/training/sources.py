"""Where the records of steps come from: emitted, JSON lines of the log, patterns on the log."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchhouse.experiments.emitted import Emitted, take_emitted
from benchhouse.experiments.training.launch import Rank

_MOST_BYTES = 2**28  # of the records of one process


def keep_emitted(folder: Path, artifacts: Path) -> list[Emitted]:
    """What was emitted, kept as it is: a file a process."""
    emitted = take_emitted(folder, _MOST_BYTES)
    for at, process in enumerate(emitted):
        rank, attempt = process.writer.get("rank", 0), process.writer.get("attempt", 0)
        (artifacts / f"steps.rank-{rank}.attempt-{attempt}.{at}.jsonl").write_bytes(process.raw)
    return emitted


def find_records(
    emitted: list[Emitted], attempts: Sequence[Sequence[Rank]], patterns: Mapping[str, str]
) -> tuple[str, list[Emitted]]:
    """Where the records come from: emitted, else JSON lines in the logs, else patterns on the logs."""
    if any("step" in record for process in emitted for record in process.records):
        return "emitted", emitted
    processes, source = [], "JSON lines of the log"
    for attempt, ranks in enumerate(attempts):
        for rank in ranks:
            printed = list(_json(rank))
            if not printed and patterns:
                printed, source = list(_matches(rank, patterns)), "patterns on the log"
            processes.append(Emitted({"rank": rank.number, "attempt": attempt}, printed))
    return source, processes


def _json(rank: Rank) -> Iterator[dict[str, Any]]:
    for at_s, line in rank.lines:
        if line.lstrip().startswith("{"):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and "step" in record:
                yield {"t": at_s, **record}


def _matches(rank: Rank, patterns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    compiled = {name: re.compile(pattern) for name, pattern in patterns.items()}
    for at_s, line in rank.lines:
        record: dict[str, Any] = {}
        for name, pattern in compiled.items():
            if match := pattern.search(line):
                try:
                    record[name] = float(match[1])
                except ValueError:
                    continue
        if (number := record.get("step")) is not None and number.is_integer():
            yield {**record, "step": int(number), "t": at_s}
