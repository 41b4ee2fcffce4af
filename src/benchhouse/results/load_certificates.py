"""The load certificate of load trials, and their rates per second."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from benchhouse.evidence.folder import read_meta, read_metrics
from benchhouse.results.numbers import HEADLINE_STATS, name_of
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse.grouping import grouped

MOST = 200
"""Trials that are read: the certificates of further ones are only in their folders."""
_LISTED = 6


class LoadFacts(Model):
    """One load trial: whether its load was generated as requested, and the responses, second by second."""

    point: str
    run_id: str
    trial_id: str
    repetition: int
    outcome: str
    problems: list[str] = Field(description="Codes of what the certificate found wrong; none: it holds.")
    loop: str
    asked: float = Field(description="Requests in flight (closed) or a second (open).")
    offered: int
    delivered: int
    in_flight: int
    lag_ms: float = Field(description="p99 of the time from due to sent.")
    wake_ms: float = Field(description="p99 of how late the load process woke.")
    off_ms: float | None = Field(None, description="How far its primary times can be off, at most; those that stand.")
    refused: list[str] = Field(default_factory=empty_list, description="Figures that are INVALID by themselves.")
    cpu_share: float = Field(description="Of one core, by the busiest load process.")
    processes: int = Field(1, description="Load processes that lived to the end.")
    chosen: str = Field("", description="Why there were so many, where the engine was to say (`processes: auto`).")
    rates: list[float] = Field(default_factory=empty_list, description="Answers a second, one a second of the window.")
    errors: list[float] = Field(default_factory=empty_list, description="Failures a second.")

    @property
    def verdict(self) -> str:
        figures = f"; INVALID figures: {shortened(self.refused, _LISTED)}" if self.refused else ""
        return (f"INVALID: {', '.join(self.problems)}" if self.problems else "holds") + figures


def gather_loads(
    root: Path, rows: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str]
) -> list[LoadFacts]:
    """Return the load trials among `rows`, in order. Evidence that is gone or of another kind is left out."""
    loads: list[LoadFacts] = []
    silent: dict[str, bool] = {}  # runs whose first trial has no certificate: none of its trials has one
    for row in rows:
        if silent.get(row["run_id"]) or len(loads) == MOST:
            continue
        facts = _facts(TrialFolder(root / row["folder"]), row, label(row))
        silent.setdefault(row["run_id"], facts is None and row["outcome"] in ("succeeded", "invalid"))
        if facts:
            loads.append(facts)
    return loads


def _facts(folder: TrialFolder, row: Mapping[str, Any], point: str) -> LoadFacts | None:
    try:
        custom = read_meta(folder).custom
        certificate = custom["certificate"]
        off_ms, refused = _bounds(folder)
        rates, errors = _seconds(folder.artifacts / "intervals.csv", float(custom.get("window_s") or 0))
        return LoadFacts(
            point=point,
            run_id=row["run_id"],
            trial_id=row["trial_id"],
            repetition=row["repetition"],
            outcome=row["outcome"],
            problems=[problem["code"] for problem in certificate["problems"]],
            loop=certificate["loop"],
            asked=certificate["asked"],
            offered=certificate["offered"],
            delivered=certificate["delivered"],
            in_flight=certificate["in_flight"],
            cpu_share=certificate["cpu_share"],
            processes=certificate["processes"],
            chosen=certificate.get("chosen", ""),  # evidence of older versions has none
            lag_ms=certificate["lag"]["p99_ms"],
            wake_ms=certificate["loop_lag"]["p99_ms"],
            off_ms=off_ms,
            refused=refused,
            rates=rates,
            errors=errors,
        )
    except (OSError, ValidationError, KeyError, TypeError, ValueError):
        return None


def _bounds(folder: TrialFolder) -> tuple[float | None, list[str]]:
    """Return the largest bound of the leading statistics of its primary times, in ms, and the names of INVALID
    numbers.
    """
    if not folder.metrics.is_file():
        return None, []
    extras = read_metrics(folder).benchhouse
    rows = [row for row in extras.measurements if not row.window and row.scope == "trial"]
    primary = extras.primary or [row.metric for row in rows if row.role == "latency"]
    bounds = [
        row.error_bound
        for row in rows
        if row.metric in primary and row.unit == "ms" and row.stat in HEADLINE_STATS and row.valid
    ]
    largest = max((bound for bound in bounds if bound is not None), default=None)
    return largest, [name_of(row.metric, row.stat) for row in rows if not row.valid]


def _seconds(path: Path, window_s: float) -> tuple[list[float], list[float]]:
    """Return responses and failures per second; the last second may be partial, and its rate refers to its length."""
    if not path.is_file():
        return [], []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(int(row["second"]), float(row["completed"]), float(row["errors"])) for row in csv.DictReader(file)]
    lengths = [min(max(window_s - second, 1e-3), 1.0) if window_s else 1.0 for second, _, _ in rows]
    return tuple([row[at] / length for row, length in zip(rows, lengths, strict=True)] for at in (1, 2))  # type: ignore[return-value]


def by_point(loads: Iterable[LoadFacts]) -> dict[tuple[str, str], list[LoadFacts]]:
    """Group trials by point: by run and label."""
    return grouped(loads, lambda load: (load.run_id, load.point))
