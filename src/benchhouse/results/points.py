"""Convert rows of numbers to the points of a report, in order and with their labels."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from benchhouse.analysis.interval_checks import doubt
from benchhouse.results.content import Point, PointNumber, RefusedFigure
from benchhouse.results.invalid_trials import missing_number_reason
from benchhouse.results.numbers import mean_interval, primary_stats, shaky, stat_place
from benchhouse.schema.query import Cell
from benchhouse.warehouse.grouping import grouped

Row = Mapping[str, Any]
_IDENTITY = ("run_id", "instance_digest", "metric", "stat")


def name_runs(trials: Iterable[Row]) -> dict[str, str]:
    """Return what distinguishes the runs of a report: the executor if each differs, otherwise the id; empty for a
    single run.
    """
    runs = grouped(trials, itemgetter("run_id"))
    names = {run_id: ", ".join(sorted({row["executor"] for row in rows})) for run_id, rows in runs.items()}
    if len(names) < 2:
        return {}
    return names if len(set(names.values())) == len(names) else {run_id: run_id for run_id in names}


def make_points(
    rows: Sequence[Row],
    cells: Sequence[Cell],
    order: Mapping[str, int],
    *,
    runs: Mapping[str, str],
    confidence: float = 0.95,
    refused: Iterable[Row] = (),
) -> list[Point]:
    """Return the points; `runs` has names from `name_runs`, `refused` are numbers that are INVALID in every trial."""
    groups = grouped(rows, itemgetter("run_id", "instance_digest"))
    identity = itemgetter(*_IDENTITY)
    cell_of = {(*identity(cell.key), cell.unit): cell for cell in cells}
    by_target = _named_by_target(group[0] for group in groups.values())
    columns = grouped(rows, itemgetter("metric", "stat", "unit"))
    gone = grouped(refused, itemgetter("run_id", "instance_digest"))
    least = {column: min(row["min"] for row in group) for column, group in columns.items()}
    points = []
    for key, group in groups.items():
        first = group[0]
        by_metric = grouped([*group, *gone.get(key, [])], itemgetter("metric"))
        leading = {metric: primary_stats({row["stat"] for row in own}) for metric, own in by_metric.items()}
        ordered = sorted(
            group, key=lambda row: (order.get(row["metric"], len(order)), row["metric"], stat_place(row["stat"]))
        )
        numbers = []
        for row in ordered:
            cell = cell_of.get((*identity(row), row["unit"]))
            if cell:
                primary = row["stat"] in leading[row["metric"]] and bool(row["direction"])
                smallest = least[row["metric"], row["stat"], row["unit"]]
                numbers.append(_number(row, cell, primary, smallest, confidence))
        axes, label = _axes(first)
        points.append(
            Point(
                label=_label(first, label, by_target=by_target, runs=runs),
                run_id=first["run_id"],
                target_name=first["target_name"],
                instance_digest=first["instance_digest"],
                benchmark_case_id=first["benchmark_case_id"],
                workload_spec_digest=first["workload_spec_digest"],
                executor=first["executor"],
                target=json.loads(first["target"]),
                axes=axes,
                parameters=json.loads(first["parameters"]),
                numbers=numbers,
                refused=[
                    RefusedFigure(
                        metric=row["metric"],
                        stat=row["stat"],
                        unit=row["unit"],
                        primary=row["stat"] in leading[row["metric"]] and bool(row["direction"]),
                    )
                    for row in gone.get(key, [])
                ],
            )
        )
    met = list(dict.fromkeys(point.run_id for point in points))
    return sorted(points, key=lambda point: (met.index(point.run_id), [_natural(v) for v in point.axes.values()]))


def _named_by_target(rows: Iterable[Row]) -> bool:
    """Whether points of different targets would otherwise have the same label."""
    same_label = grouped(rows, itemgetter("point")).values()
    return any(len({row["target_name"] for row in group}) > 1 for group in same_label)


def _label(row: Row, axes: str, *, by_target: bool, runs: Mapping[str, str]) -> str:
    name = " ".join(filter(None, [row["target_name"] if by_target or not axes else "", axes]))
    return " ".join(filter(None, [name or row["scenario"], f"({runs[row['run_id']]})" if runs else ""]))


def without_number(trials: Sequence[Row], points: Sequence[Point], *, runs: Mapping[str, str]) -> list[str]:
    """Return the labels of points that were tried and have no number, each with the reason."""
    tried = grouped((row for row in trials if not row["warmup"]), itemgetter("run_id", "instance_digest"))
    label = labeller((rows[0] for rows in tried.values()), runs=runs)
    known = {(point.run_id, point.instance_digest) for point in points}
    return [
        f"{label(rows[0])} ({missing_number_reason(row['outcome'] for row in rows)})"
        for key, rows in tried.items()
        if key not in known
    ]


def labeller(rows: Iterable[Row], *, runs: Mapping[str, str]) -> Callable[[Row], str]:
    """Return a function that names the point of each of these trials."""
    by_target = _named_by_target(rows)
    return lambda row: _label(row, _axes(row)[1], by_target=by_target, runs=runs)


def _natural(value: Any) -> tuple[int, float, str]:
    """Return a sort key: numbers by size, before words in alphabetical order."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, value, "") if number else (1, 0.0, str(value))


def _axes(row: Row) -> tuple[dict[str, Any], str]:
    """Return the axes in the order of the label, and the label.

    `target.index` is shortened to `index` if that is unambiguous, and a target's name appears without a key: `hnsw
    ef=16`.
    """
    axes, label = json.loads(row["axes"]), f" {row['point']}"
    short = [name.rpartition(".")[2] for name in axes]
    named = dict(zip(short, axes.values(), strict=True)) if len(set(short)) == len(short) else axes
    ordered = dict(sorted(named.items(), key=lambda item: label.find(f" {item[0]}=")))
    if "target.name" in axes and "name" in ordered and "target" not in ordered:
        ordered = {"target" if name == "name" else name: value for name, value in ordered.items()}
        label = label.replace(f" name={row['target_name']}", f" {row['target_name']}", 1)
    return ordered, label.strip()


def _number(row: Row, cell: Cell, primary: bool, least: float, confidence: float) -> PointNumber:
    stdev = row["stdev"] if row["n"] > 1 else None
    interval = mean_interval(row["mean"], stdev, row["n"], least, confidence)
    per_trial = int(row["samples"] or 0) // row["n"]
    return PointNumber(
        cell=cell,
        metric=row["metric"],
        stat=row["stat"],
        direction=row["direction"],
        primary=primary,
        stdev=stdev,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        doubt=doubt(row["values"]),
        minimum=row["min"],
        maximum=row["max"],
        values=list(row["values"]),
        samples=per_trial or None,
        shaky=shaky(row["stat"], per_trial),
        error_bound=row["error_bound"],
    )
