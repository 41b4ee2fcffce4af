"""Sources of step records: emitted, JSON lines of the log, patterns on the log, and the torch profiler."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchhouse.experiments.emitted_records import Emitted, collect_emitted
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.patterns import PatternSearchResult, TimedLine, search
from benchhouse.experiments.training.profiles import profiled_times
from benchhouse.experiments.training.steps import not_finite, repeated_records
from benchhouse.experiments.training.traces import Spans
from benchhouse.schema.experiment import Context

_MOST_BYTES = 2**28  # of the records of one process


def keep_emitted(folder: Path, artifacts: Path) -> list[Emitted]:
    """Save the emitted records unchanged, one file per process, and return them."""
    emitted = collect_emitted(folder, _MOST_BYTES)
    for at, process in enumerate(emitted):
        rank, attempt = process.writer.get("rank", 0), process.writer.get("attempt", 0)
        (artifacts / f"steps.rank-{rank}.attempt-{attempt}.{at}.jsonl").write_bytes(process.raw)
    return emitted


@dataclass(frozen=True)
class Records:
    """The records of all processes, their source, and warnings about how they were found."""

    source: str
    processes: list[Emitted] = field(default_factory=list)
    profiled: Spans = field(default_factory=list)
    """When a profiler ran: steps of that time are not measured, unless there are no others."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    slow_pattern: str = ""


def find_records(
    emitted: list[Emitted],
    attempts: Sequence[Sequence[RankProcess]],
    patterns: Mapping[str, str],
    traced: list[Emitted],
) -> Records:
    """Return the records of the first source that has steps: emitted, JSON lines, patterns, profiler traces."""
    profiled = profiled_times(emitted)
    if _has_steps(emitted):
        return Records("emitted", emitted, profiled)
    ranks = [(attempt, rank) for attempt, ranks in enumerate(attempts) for rank in ranks]
    printed = [Emitted({"rank": rank.number, "attempt": attempt}, list(_json(rank))) for attempt, rank in ranks]
    if _has_steps(printed):
        return Records("JSON lines of the log", printed, profiled)
    if patterns:
        matched = _matches([rank for _, rank in ranks], patterns)
        for process, record in matched.found.records:
            printed[process].records.append(record)
        if _has_steps(printed) or matched.found.slow:
            return Records("patterns on the log", printed, profiled, matched.warnings, matched.found.slow)
    if traced:
        warnings = {"profiled": "all steps ran under the torch profiler, as no other source has any: they are slower"}
        return Records("torch profiler", traced, warnings=warnings)
    return Records("nothing")


def check_records(records: Records, ctx: Context) -> None:
    """Warn about faulty records, and fail the trial if a pattern takes too long."""
    if records.slow_pattern:
        ctx.fail("pattern_slow", f"workload.patterns: {records.slow_pattern}; let it not repeat what repeats, as (a+)+")
    for code, message in records.warnings.items():
        ctx.warn(code, message)
    if lost := sum(process.lost for process in records.processes):
        ctx.warn("records_lost", f"{lost} records could not be written, or are no JSON")
    if counts := not_finite(records.processes):
        names = ", ".join(f"{name}: {count} values" for name, count in counts.items())
        ctx.warn("not_finite", f"{names} are no finite numbers (nan, inf): in no figure")
    if again := repeated_records(records.processes):
        ctx.warn("steps_told_twice", f"{again} records tell a step of a rank again: the one that ends last counts; "
            "number the steps of a training through, and let one process of a rank tell them")  # fmt: skip


def _has_steps(processes: Sequence[Emitted]) -> bool:
    return any(isinstance(record.get("step"), int) for process in processes for record in process.records)


def _json(rank: RankProcess) -> Iterator[dict[str, Any]]:
    for at_s, line in rank.lines:
        if line.lstrip().startswith("{"):
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                yield {"t": at_s, **record}


@dataclass(frozen=True)
class _Matched:
    found: PatternSearchResult
    warnings: Mapping[str, str]


def _matches(ranks: Sequence[RankProcess], patterns: Mapping[str, str]) -> _Matched:
    lines = (TimedLine(process, at_s, text) for process, rank in enumerate(ranks) for at_s, text in rank.lines)
    found = search(lines, patterns)
    missed = [name for name, count in found.matches.items() if not count]
    warnings = {}
    if found.records and missed:
        process, record = found.records[0]
        line = next(text for at_s, text in ranks[process].lines if at_s == record["t"])
        told = ", ".join(f"{name} {patterns[name]!r}" for name in missed)
        warnings["pattern_unmatched"] = f"{told}: no match in {len(found.records)} lines with a step, as {line[:120]!r}"
    return _Matched(found, warnings)


def describe_unmatched(patterns: Mapping[str, str], ranks: Sequence[RankProcess]) -> str:
    """Name the pattern of a step that no line matches, with a line; empty without patterns or lines."""
    rank = next((rank for rank in ranks if rank.lines), None)
    if not patterns or rank is None:
        return ""
    lines = sum(len(rank.lines) for rank in ranks)
    return f"the pattern {patterns['step']!r} of workload.patterns.step matches none of {lines} lines, such as " + repr(
        rank.lines[-1][1][:120]
    )
