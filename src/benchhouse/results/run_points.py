"""The points of runs with every metric: mean, spread, n, and the reference for `bench trace`."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import itemgetter
from typing import Any

from benchhouse.analysis.axis_spread import axis_spreads, spread
from benchhouse.analysis.summary import shaky_quantiles
from benchhouse.results.metric_names import declared_order, parse_metrics
from benchhouse.results.numbers import mean_interval, name_of, percent, quantity
from benchhouse.results.table_cells import ref_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.json_text import read_json
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Warehouse


@dataclass(frozen=True)
class PointValue:
    """One statistic of one metric at one point of a run, over its successful trials."""

    run_id: str
    scenario: str
    experiment: str
    target_name: str | None
    point: str
    """Values that vary within the run: `name=hnsw ef_search=64`; empty if nothing varies."""
    axes: str
    """The same as JSON: axis -> value."""
    target: str
    """The whole target, as JSON."""
    parameters: str
    """All parameters of the workload, as JSON."""
    instance_digest: str
    """Digest of case and target: the same point has the same digest in every run."""
    benchmark_case_id: str
    """Digest of experiment, version, and workload, which identifies what is compared over time."""
    workload_spec_digest: str
    """Digest of the workload alone."""
    executor: str
    metric: str
    stat: str
    """`value`, or the statistic that the trial computed from its samples: mean, p50, p99, ..."""
    unit: str
    direction: Direction | None
    """Whether higher or lower is better; None if neither is."""
    n: int
    """Number of successful trials."""
    mean: float
    """Mean over these trials."""
    stdev: float | None
    """Standard deviation between these trials; None for a single one."""
    min: float
    max: float
    values: list[float]
    """Values of these trials."""
    trials: list[str]
    """Ids of these trials, in the same order."""
    samples: int
    """Number of samples within all trials together."""
    error_bound: float | None
    """How far a value can be off, in its unit: the largest of these trials. None if no trial reports it."""
    ref: str
    """Reference for `bench trace`."""
    shaky: bool
    """Whether it is a percentile of too few samples within a trial."""
    headline: bool
    """Whether it leads its metric: the value, or the mean."""
    interval: tuple[float, float] | None = None
    """The 95% interval of the mean; None for a single trial."""

    @property
    def label(self) -> str:
        """The name of the point in a table."""
        return self.point or self.target_name or self.scenario


@dataclass
class TriedPoint:
    """A point that was tried, with or without a number: how many of its trials succeeded."""

    run_id: str
    instance_digest: str
    point: str
    target_name: str | None
    scenario: str
    succeeded: int = 0
    trials: int = 0
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """Numbers that are INVALID in every successful trial: metric, statistic, and unit."""

    @property
    def label(self) -> str:
        return self.point or self.target_name or self.scenario


@dataclass(frozen=True)
class PointPage:
    """Some numbers of a run, and where the next page begins."""

    rows: list[PointValue]
    cursor: str | None
    """The value of `after` for the next page; None if there is no next page."""


def points(workspace: WorkspaceFolder, run_ids: Sequence[str]) -> list[PointValue]:
    """Return every number of these runs, metrics in the order of their experiment, then by name."""
    with Warehouse.open(workspace) as warehouse:
        values = _values(queries.points(warehouse, run_ids).dicts())
    firsts = dict.fromkeys((value.scenario, value.trials[0]) for value in values)
    place = _places(workspace.trial(*first) for first in firsts)
    return sorted(values, key=lambda value: place(value.metric))


def point_page(
    workspace: WorkspaceFolder, run_id: str, metrics: Sequence[str], after: str | None, limit: int
) -> PointPage:
    """Return at most `limit` numbers of a run, in the order of `points`; if `metrics` is not empty, only of these.

    Only the metrics of the page are computed.
    """
    with Warehouse.open(workspace) as warehouse:
        columns = queries.columns(warehouse, [run_id]).dicts()
        folders = warehouse.catalog.trial_folders(run_id)
        known = dict.fromkeys(row["trial"] for row in columns)
        place = _places(TrialFolder(folders[trial]) for trial in known if trial in folders)
        wanted = _wanted(columns, metrics)
        first, given = _read_cursor(after, wanted)
        left = sorted((metric for metric in wanted if not first or place(metric) >= place(first)), key=place)
        picked, size = list[str](), 0
        for metric in left:
            if size > given + limit:
                break
            picked.append(metric)
            size += sum(wanted[metric].values())
        pairs = [(metric, stat) for metric in picked for stat in wanted[metric]]
        values = _values(queries.points(warehouse, [run_id], pairs).dicts())
    ordered = sorted(values, key=lambda value: place(value.metric))
    rows = ordered[given : given + limit]
    if not rows or (len(ordered) <= given + limit and len(picked) == len(left)):
        return PointPage(rows, None)
    last = rows[-1].metric
    told = sum(row.metric == last for row in rows) + (given if last == first else 0)
    return PointPage(rows, json.dumps([last, told], ensure_ascii=False))


def _wanted(columns: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the statistics of each metric, with the number of points that have them."""
    sizes = {
        metric: {row["stat"]: int(row["points"]) for row in own}
        for metric, own in grouped(columns, itemgetter("metric")).items()
    }
    named = grouped(parse_metrics(metrics, sizes), lambda name: name.metric)
    if not named:
        return sizes
    return {
        metric: {stat: n for stat, n in sizes[metric].items() if {None, stat} & {name.stat for name in names}}
        for metric, names in named.items()
    }


def _read_cursor(after: str | None, known: Collection[str]) -> tuple[str | None, int]:
    """Return the metric of the last row of the previous page, and how many of its rows have been returned."""
    if not after:
        return None, 0
    try:
        metric, given = read_json(after)
    except (ValueError, TypeError):
        metric, given = None, None
    if not isinstance(metric, str) or metric not in known or not isinstance(given, int) or given < 0:
        raise BenchError("after: this is no cursor of a page", "take the cursor of the page before, as it is")
    return metric, given


def _values(rows: Sequence[Mapping[str, Any]]) -> list[PointValue]:
    """Convert rows of the published query; intervals use the smallest value of a metric in all rows."""
    known = {item.name for item in fields(PointValue)}
    columns = grouped(rows, itemgetter("metric", "stat", "unit"))
    least = {column: min(row["min"] for row in group) for column, group in columns.items()}
    return [
        PointValue(
            **{name: value for name, value in row.items() if name in known},
            ref=ref_of(row["run_id"], row["instance_digest"], row["metric"], row["stat"]),
            shaky=bool(row["n"]) and row["stat"] in shaky_quantiles(int(row["samples"] / row["n"])),
            headline=row["stat"] in ("value", "mean"),
            interval=mean_interval(row["mean"], row["stdev"], row["n"], least[row["metric"], row["stat"], row["unit"]]),
        )
        for row in rows
    ]


def _places(trials: Iterable[TrialFolder]) -> Callable[[str], tuple[int, str]]:
    """Return a sort key for metrics: their order in the first sealed one of these trials, others after them by name."""
    order = declared_order(islice((trial for trial in trials if trial.sealed), 1))
    return lambda metric: (order.get(metric, len(order)), metric)


def tried_points(workspace: WorkspaceFolder, run_ids: Sequence[str]) -> list[TriedPoint]:
    """Return every point that was tried, in the order of `points`."""
    with Warehouse.open(workspace) as warehouse:
        trials = queries.trials(warehouse, run_ids).dicts()
        refused = queries.refused_figures(warehouse, run_ids).dicts()
    tried: dict[tuple[str, str], TriedPoint] = {}
    for row in trials:
        if row["warmup"]:
            continue
        key = row["run_id"], row["instance_digest"]
        point = tried.setdefault(key, TriedPoint(*key, row["point"], row["target_name"], row["scenario"]))
        point.trials += 1
        point.succeeded += row["outcome"] == "succeeded"
    for row in refused:
        tried[row["run_id"], row["instance_digest"]].refused.append((row["metric"], row["stat"], row["unit"]))
    return list(tried.values())


def spread_lines(points: Sequence[PointValue], most_axes: int) -> list[str]:
    """Return, in words, how one metric spreads over many points: over all of them, then by axis."""
    first = points[0]
    name, unit = name_of(first.metric, first.stat), first.unit
    over_all = spread([point.mean for point in points])
    low, middle, high = (quantity(value, unit) for value in (over_all.minimum, over_all.median, over_all.maximum))
    lines = [f"{name}: {low} to {high}, median {middle}, over {over_all.points:,} points"]
    axes = axis_spreads([(json.loads(point.axes), point.mean) for point in points], None)
    lines += [
        f"  {axis.axis}: highest at {axis.best} (median {quantity(axis.best_median, unit)}), lowest at {axis.worst} "
        f"({quantity(axis.worst_median, unit)}); explains {percent(axis.explained, signed=False)} of the variance"
        for axis in axes[:most_axes]
    ]
    return lines + ([f"  and {len(axes) - most_axes} more axes: bench report"] if len(axes) > most_axes else [])
