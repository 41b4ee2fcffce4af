"""Sides of which one ran after the other: whether noise persists from trial to trial, according to earlier runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchhouse.analysis.memory import FEWEST, memory_of
from benchhouse.results.paired_rounds import ran_apart
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

Row = Mapping[str, Any]
Columns = set[tuple[str, str]]
Earlier = Callable[[Columns], Sequence[Row]]
"""Returns rows of the points query of earlier runs, for these metrics and statistics; called only if persistent noise
would matter.
"""
APART = "the sides did not take turns"
_RUNS = 12  # earlier runs that are read
_LISTED = 8


def memories(numbers: Sequence[tuple[Row, Row]], trials: Mapping[str, Row], earlier: Earlier) -> list[float | None]:
    """Return the memory (autocorrelation) of each number's noise; 0 if the sides alternated, None if there is too
    little data.
    """
    apart = [ran_apart(x, y, trials) for x, y in numbers]
    blocks: dict[tuple[Any, ...], list[Sequence[float]]] = {}
    columns = {(row["metric"], row["stat"]) for row, _ in numbers}
    for row in earlier(columns) if any(apart) else ():
        blocks.setdefault(_key(row), []).append(row["values"])
    found: list[float | None] = []
    for sides, alone in zip(numbers, apart, strict=True):
        of_both = [block for key in dict.fromkeys(map(_key, sides)) for block in blocks.get(key, ())]
        found.append(memory_of(of_both, [row["values"] for row in sides]) if alone else 0.0)
    return found


def earlier_rows(warehouse: Warehouse, rows: Sequence[Row], columns: Columns) -> list[dict[str, Any]]:
    """Return the points of the newest other runs of the same scenarios that started before the last run of
    these rows.
    """
    runs, scenarios = ({row[name] for row in rows} for name in ("run_id", "scenario"))
    known = warehouse.catalog.runs()
    last = max(run.started for run in known if run.run_id in runs)
    before = [run for run in known if run.scenario in scenarios and run.started < last and run.run_id not in runs]
    return queries.points(warehouse, [run.run_id for run in before[:_RUNS]], columns).dicts() if before else []


def notes(memory_by_name: Sequence[tuple[str, float | None]]) -> list[str]:
    """Return notes about the memory of numbers."""
    told = []
    if lasting := dict.fromkeys(f"{name} {memory:.1f}" for name, memory in memory_by_name if memory):
        listed = shortened(list(lasting), _LISTED)
        told.append(f"Intervals are wider: {APART}, and noise lasts from trial to trial (correlation {listed}).")
    if any(memory is None for _, memory in memory_by_name):
        told.append(f"Perhaps drift: {APART}, and fewer than {FEWEST} earlier trials can't say whether noise lasts.")
    return told


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("benchmark_case_id", "target_name", "metric", "stat", "unit"))
