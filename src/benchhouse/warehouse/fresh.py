"""The rows of the run that was collected last, as long as the tables hold just them: its summary needs no engine.

`bench run` sums up what it has just written. Importing DuckDB and starting it took longer than all else that it does
then. The same question is answered from memory where its input files, by their digests, are those that were written
from these rows; the answer is the engine's to the bit, and is pinned as its own.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from benchhouse.schema.query import QueryInput
from benchhouse.warehouse.catalog import FileEntry
from benchhouse.warehouse.table import Row
from benchhouse.warehouse.tables import MEASUREMENT_FACT, TRIAL_FACT

Tables = Mapping[str, Sequence[Row]]
Answer = tuple[tuple[str, ...], tuple[str, ...], list[tuple[Any, ...]]]
"""Columns, their types as DuckDB names them, and rows."""
InMemory = Callable[[Tables], Answer]

_MOST_TRIALS = 1000  # of more, an engine is the quicker one
_last: tuple[dict[str, set[str]], Tables] = {}, {}


def remember(entries: Iterable[FileEntry], tables: Tables) -> None:
    """Keep the rows that these files were written from, instead of those of the run before."""
    global _last
    files: dict[str, set[str]] = {}
    if len(tables[TRIAL_FACT.name]) <= _MOST_TRIALS:
        for entry in entries:
            files.setdefault(entry.table, set()).add(entry.sha256)
    names = (TRIAL_FACT.name, MEASUREMENT_FACT.name)
    _last = files, {name: tables.get(name, ()) for name in names} if files else {}


def recall(tables: Iterable[str], inputs: Iterable[QueryInput]) -> Tables | None:
    """The rows of these tables, where `inputs` are the very files that hold them and no others."""
    files, rows = _last
    asked: dict[str, set[str]] = {}
    for one in inputs:
        asked.setdefault(one.table, set()).add(one.sha256)
    known = {table: files[table] for table in tables if table in files}
    return rows if asked and asked == known else None


def trials(tables: Tables) -> Answer:
    """As `queries.TRIALS`, of one run."""
    order = ("warmup", "target_name", "point", "instance_digest", "repetition", "trial_id")
    rows = sorted(tables[TRIAL_FACT.name], key=lambda row: (not row["warmup"], *(row[name] for name in order[1:])))
    columns = TRIAL_FACT.columns
    names, types = tuple(one.name for one in columns), tuple(one.sql_type for one in columns)
    return names, types, [tuple(_told(row[name]) for name in names) for row in rows]


_OF_TRIAL = (
    "run_id", "scenario", "experiment", "target_name", "point", "axes", "target", "parameters", "instance_digest",
    "benchmark_case_id", "workload_spec_digest",
)  # fmt: skip
_OF_METRIC = ("metric", "stat", "unit", "direction")
_POINTS = {
    **dict.fromkeys((*_OF_TRIAL, "executor", *_OF_METRIC), "VARCHAR"), "n": "BIGINT", "mean": "DOUBLE",
    "stdev": "DOUBLE", "min": "DOUBLE", "max": "DOUBLE", "values": "DOUBLE[]", "trials": "VARCHAR[]",
    "samples": "BIGINT",
}  # fmt: skip


def points(tables: Tables) -> Answer:
    """As `queries.POINTS`, of one run."""
    counted = {
        row["trial_id"]: row
        for row in sorted(tables[TRIAL_FACT.name], key=lambda row: (row["repetition"], row["trial_id"]))
        if row["outcome"] == "succeeded" and not row["warmup"]
    }
    order = {trial: number for number, trial in enumerate(counted)}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in tables[MEASUREMENT_FACT.name]:
        if row["trial_id"] in counted and row["scope"] == "trial" and row["window"] == "":
            key = counted[row["trial_id"]]["instance_digest"], *(row[name] for name in _OF_METRIC)
            groups.setdefault(key, []).append(row)
    found = []
    for group in groups.values():
        group.sort(key=lambda row: order[row["trial_id"]])
        found.append(_point([counted[row["trial_id"]] for row in group], group))
    found.sort(key=_place)
    return tuple(_POINTS), tuple(_POINTS.values()), found


def _point(trials: Sequence[Row], group: Sequence[Row]) -> tuple[Any, ...]:
    values = [float(row["value"]) for row in group]
    mean, stdev = _moments(values)
    samples = [row["n"] for row in group if row["n"] is not None]
    return (
        *(trials[0][name] for name in _OF_TRIAL),
        ", ".join(sorted({row["executor"] for row in trials})),
        *(group[0][name] for name in _OF_METRIC),
        len(values), mean, stdev, min(values), max(values), values,
        [row["trial_id"] for row in trials],
        sum(samples) if samples else None,
    )  # fmt: skip


def _moments(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample deviation, added up as DuckDB does, so that not even the last bit differs."""
    total = mean = squares = 0.0
    for number, value in enumerate(values, start=1):
        total += value
        step = value - mean
        mean += step / number
        squares += step * (value - mean)
    return total / len(values), math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    told = dict(zip(_POINTS, row, strict=True))
    names = ("run_id", "target_name", "point", "instance_digest", "metric", "stat", "unit")
    return *(told[name] for name in names), told["direction"] is not None, told["direction"] or ""


def _told(value: Any) -> Any:
    return value.replace(tzinfo=UTC).isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
