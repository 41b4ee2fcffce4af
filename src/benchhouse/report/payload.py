"""The data of the page's scripts: ReportData made small, column by column; `unpack` of data.js restores the points.

A column with equal entries has one entry. In a large sweep, numbers have the digits that are ever shown; the exact ones
are in report.json and behind `bench trace`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from benchhouse.results.content import Point, PointNumber, ReportData
from benchhouse.results.numbers import number as number_text
from benchhouse.results.numbers import off_text, spread_text
from benchhouse.results.table_cells import ref_of

_RESTATED = 0.1
"""The share of its own range that a metric may leave unexplained and still count as a restatement of another one."""


def payload(data: ReportData) -> dict[str, Any]:
    """Return a JSON-able value: metrics, axes that vary, points and their numbers by metric, trials in order."""
    columns = data.columns()
    index = {column.column: str(at) for at, column in enumerate(columns)}
    order = {trial.trial_id: at for at, trial in enumerate(data.trials)}
    values = [axis_values(point, several_runs=len(data.runs) > 1) for point in data.points]
    _name_curves(data, values)
    # The trials behind most of a point's numbers, by place: a number names its own only if they differ.
    longest = [max((number.cell.trials for number in point.numbers), key=len, default=[]) for point in data.points]
    behind = [[order[trial] for trial in trials if trial in order] for trials in longest]
    return {
        "metrics": [
            {name: getattr(column, name) for name in ("metric", "stat", "direction", "primary")}
            | {"label": column.name, "unit": column.cell.unit}
            for column in columns
        ],
        "refused": _refused(data, index),
        "missing": data.without_number,
        "axes": varying_axes(values),
        "large": bool(data.spreads),
        "tradeoff": _asked(data, index) or tradeoff(data.points, columns),
        "curves": _curves(data, index),
        "points": _points(data.points, values, behind),
        "numbers": [_numbers(data, column, order, behind) for column in columns],
        "trials": {
            "id": [trial.trial_id for trial in data.trials],
            "outcome": _column([trial.outcome for trial in data.trials]),
            "home": _column([trial.folder.removesuffix(trial.trial_id) for trial in data.trials]),
        },
    }


def _refused(data: ReportData, index: Mapping[tuple[str, str, str], str]) -> list[dict[str, Any]]:
    """Return values that are INVALID in all trials, with their points; `metric` is null if no point has a number of
    it."""
    figures = {figure.column: figure for point in data.points for figure in point.refused}
    return [
        {
            "metric": int(index[column]) if column in index else None,
            "label": figure.name,
            "unit": figure.unit,
            "primary": figure.primary,
            "at": [at for at, point in enumerate(data.points) if any(item.column == column for item in point.refused)],
        }
        for column, figure in figures.items()
    ]


def _name_curves(data: ReportData, values: list[dict[str, Any]]) -> None:
    """Give each point its curve as one more property to color by, unless an axis already distinguishes curves."""
    if not data.tradeoff:
        return
    names = {point.point: curve.name for curve in data.tradeoff.curves for point in curve.points}
    shown = [(str(names.get(at, "none")), axes) for at, axes in enumerate(values)]
    for axis in {name for axes in values for name in axes}:
        pairs = {(name, str(axes.get(axis))) for name, axes in shown}
        if len(pairs) == len({name for name, _ in pairs}) == len({value for _, value in pairs}):
            return
    for name, axes in shown:
        axes["@curve"] = name


def _asked(data: ReportData, index: dict[tuple[str, str, str], str]) -> list[int] | None:
    """Return the metrics of the curves, the gained one first; None without a trade-off."""
    axes = (data.tradeoff.y, data.tradeoff.x) if data.tradeoff else ()
    places = [index.get((axis.metric, axis.stat, axis.unit)) for axis in axes]
    return [int(place) for place in places if place is not None] if places and None not in places else None


def _curves(data: ReportData, index: dict[tuple[str, str, str], str]) -> dict[str, Any] | None:
    shown, metrics = data.tradeoff, _asked(data, index)
    if not shown or not metrics:
        return None
    return {
        "y": metrics[0],
        "x": metrics[1],
        "level": shown.level,
        "lines": [
            {
                "name": curve.name,
                "line": curve.line,
                "points": [point.point for point in curve.points],
                "value": curve.at.value if curve.at else None,
                "low": curve.at.interval[0] if curve.at and curve.at.interval else None,
                "high": curve.at.interval[1] if curve.at and curve.at.interval else None,
            }
            for curve in shown.curves
        ],
        "front": [point.point for curve in shown.curves for point in curve.points if point.frontier],
    }


def tradeoff(points: Sequence[Point], columns: Sequence[PointNumber]) -> list[int] | None:
    """Return the places of the first two metrics that vary and don't merely restate each other, or else of the first
    two; None for fewer than two."""
    leading = [at for at, column in enumerate(columns) if column.primary] or list(range(len(columns)))
    # One statistic represents its metric: the tail of a latency adds nothing if its mean does not.
    usable = list({columns[at].metric: at for at in reversed(leading)}.values())[::-1]
    pairs = list(combinations(usable, 2))
    values: dict[int, list[float | None]] = {}
    logs: dict[int, list[float | None]] = {}
    for at in usable:
        numbers = [point.number(columns[at].column) for point in points]
        values[at] = [number.cell.value if number else None for number in numbers]
        logs[at] = [value if value is None else math.log(value) if value > 0.0 else -math.inf for value in values[at]]
    varying = {at for at in usable if len({*values[at]} - {None}) > 1}
    lively = [(a, b) for a, b in pairs if {a, b} <= varying]
    telling = next(((a, b) for a, b in lively if not _restates(logs[a], logs[b])), None)
    chosen = telling or next(iter(lively or pairs), None)
    return list(chosen) if chosen else None


def _restates(a: Sequence[float | None], b: Sequence[float | None]) -> bool:
    """Return whether two metrics, given as logarithms, have a constant ratio or product: a rate and its time, or one
    quantity in two units."""
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(both) < 2 or any(-math.inf in pair for pair in both):
        return False
    xs, ys = [x for x, _ in both], [y for _, y in both]
    least = _RESTATED * min(max(xs) - min(xs), max(ys) - min(ys))
    apart = [x - y for x, y in both]
    if max(apart) - min(apart) <= least:
        return True
    together = [x + y for x, y in both]
    return max(together) - min(together) <= least


def axis_values(point: Point, *, several_runs: bool) -> dict[str, Any]:
    """Return what distinguishes a point: its axes, its target, its executor, and its run if there are several."""
    axes = {name: _scalar(value) for name, value in point.axes.items()}
    axes["@target"] = point.target_name
    axes["@executor"] = point.executor
    if several_runs:
        axes["@run"] = point.run_id
    return axes


def varying_axes(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return axes with more than one value, each with its values in order, without a target that only repeats an
    axis."""
    names = dict.fromkeys(name for point in points for name in point)
    every = {name: list(dict.fromkeys(point[name] for point in points if name in point)) for name in names}
    varying = {name: values for name, values in every.items() if len(values) > 1}
    if "@target" in varying:
        for name, values in varying.items():
            pairs = {(str(point.get(name)), point["@target"]) for point in points}
            if name not in ("@target", "@executor", "@run") and len(pairs) == len(values) == len(varying["@target"]):
                del varying["@target"]
                break
    axes = []
    for name, values in varying.items():
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        shown = sorted(values) if numeric else values
        axes.append({"name": name, "title": name.removeprefix("@"), "numeric": numeric, "values": shown})
    return axes


def _scalar(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _column(values: list[Any]) -> list[Any]:
    """Return the values, or one entry if all are equal."""
    return values[:1] if values and all(value == values[0] for value in values) else values


def _points(points: Sequence[Point], values: Sequence[dict[str, Any]], behind: Sequence[list[int]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for axes in values for name in axes))
    return {
        "label": [point.label for point in points],
        "run": _column([point.run_id for point in points]),
        "target": _column([point.target_name for point in points]),
        "axes": {name: _column([axes.get(name) for axes in values]) for name in names},
        "instance": [point.instance_digest for point in points],
        "case": _column([point.benchmark_case_id for point in points]),
        "workload": _column([point.workload_spec_digest for point in points]),
        "trials": behind,
    }


def _numbers(
    data: ReportData, column: PointNumber, order: Mapping[str, int], behind: Sequence[list[int]]
) -> dict[str, Any]:
    """Return one metric of all points; `at` lists the points that have it, None if all do."""
    present = [(at, number) for at, point in enumerate(data.points) if (number := point.number(column.column))]
    numbers = [number for _, number in present]
    short = _shortened if data.spreads else lambda value, digits: value
    trials, values = [], []
    for at, number in present:
        known = [(order[trial], value) for trial, value in zip(number.cell.trials, number.values, strict=True)
                 if trial in order]  # fmt: skip
        places = [place for place, _ in known]
        trials.append(0 if places == behind[at] else places)
        values.append([short(value, 7) for _, value in known])
    return {
        "at": None if len(present) == len(data.points) else [at for at, _ in present],
        "value": [short(number.cell.value, 9) for number in numbers],
        "text": [number_text(number.cell.value, number.stdev) for number in numbers],
        "spread": _column([spread_text(number.cell.value, number.stdev) for number in numbers]),
        "n": _column([number.cell.n for number in numbers]),
        "stdev": _column([short(number.stdev, 4) for number in numbers]),
        "low": _column([short(number.low, 6) for number in numbers]),
        "high": _column([short(number.high, 6) for number in numbers]),
        "doubt": _column([number.doubt for number in numbers]),
        "samples": _column([number.samples for number in numbers]),
        "shaky": _column([number.shaky for number in numbers]),
        "off": _column([off_text(number.cell.value, number.error_bound) for number in numbers]),
        "ref": None if _is_plain(numbers[0]) else [number.cell.ref for number in numbers],
        "query": _column([number.cell.query for number in numbers]),
        "values": values,
        "trials": _column(trials),
    }


def _is_plain(number: PointNumber) -> bool:
    """Return whether the reference follows from its run, point, and metric: then the script can write it."""
    key = number.cell.key
    return number.cell.ref == ref_of(key.get("run_id", ""), key.get("instance_digest"), number.metric, number.stat)


def _shortened(value: float | None, digits: int) -> float | int | None:
    """Return the value rounded to significant digits; a whole number without its `.0`."""
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
