"""The points of runs with every metric: mean, spread, n, and the reference that `bench trace` takes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import itemgetter

from benchhouse.analysis.axis_spread import axis_spreads, spread
from benchhouse.analysis.summary import shaky_quantiles
from benchhouse.results.cells import ref_of
from benchhouse.results.metric_names import declared_order
from benchhouse.results.numbers import mean_interval, name_of, percent, quantity
from benchhouse.schema.experiment import Direction
from benchhouse.schema.layout import WorkspaceFolder
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
    """What is set here and varies within the run: `name=hnsw ef_search=64`; empty where nothing varies."""
    axes: str
    """The same as JSON: axis -> value."""
    target: str
    """The whole target, as JSON."""
    parameters: str
    """All parameters of the workload, as JSON."""
    instance_digest: str
    """Of case and target: the same point has the same digest in every run."""
    benchmark_case_id: str
    """Digest of experiment, version and workload: what is compared over time."""
    workload_spec_digest: str
    """Digest of the workload alone."""
    executor: str
    metric: str
    stat: str
    """value, or what the trial computed from its samples: mean, p50, p99, ..."""
    unit: str
    direction: Direction | None
    """higher or lower is better; None where neither is."""
    n: int
    """Successful trials."""
    mean: float
    """Over these trials."""
    stdev: float | None
    """Between these trials; None of a single one."""
    min: float
    max: float
    values: list[float]
    """Of each trial."""
    trials: list[str]
    """Their ids, in the same order."""
    samples: int
    """Within all trials together."""
    error_bound: float | None
    """How far a value can be off, in its unit, the most of these trials; None where none says."""
    ref: str
    """What `bench trace` takes."""
    shaky: bool
    """A percentile of too few samples within a trial to be trusted."""
    headline: bool
    """Whether it leads its metric: the value, or the mean."""
    interval: tuple[float, float] | None = None
    """The 95% interval of the mean; None of a single trial."""

    @property
    def label(self) -> str:
        """How the point is named in a table."""
        return self.point or self.target_name or self.scenario


@dataclass
class TriedPoint:
    """A point that was tried, whether or not it has a number: how many of its trials succeeded."""

    run_id: str
    instance_digest: str
    point: str
    target_name: str | None
    scenario: str
    succeeded: int = 0
    trials: int = 0
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """Figures that are INVALID in every trial that succeeded: metric, stat and unit."""

    @property
    def label(self) -> str:
        return self.point or self.target_name or self.scenario


def points(workspace: WorkspaceFolder, run_ids: Sequence[str]) -> list[PointValue]:
    """Every number of these runs, metrics in their experiment's own order."""
    with Warehouse.open(workspace) as warehouse:
        result = queries.points(warehouse, run_ids)
    rows, known = result.dicts(), {item.name for item in fields(PointValue)}
    columns = grouped(rows, itemgetter("metric", "stat", "unit"))
    least = {column: min(row["min"] for row in group) for column, group in columns.items()}
    values = [
        PointValue(
            **{name: value for name, value in row.items() if name in known},
            ref=ref_of(row["run_id"], row["instance_digest"], row["metric"], row["stat"]),
            shaky=bool(row["n"]) and row["stat"] in shaky_quantiles(int(row["samples"] / row["n"])),
            headline=row["stat"] in ("value", "mean"),
            interval=mean_interval(row["mean"], row["stdev"], row["n"], least[row["metric"], row["stat"], row["unit"]]),
        )
        for row in rows
    ]
    firsts = dict.fromkeys((value.scenario, value.trials[0]) for value in values)
    folders = (workspace.trial(*first) for first in firsts)
    order = declared_order(islice((folder for folder in folders if folder.sealed), 1))
    return sorted(values, key=lambda value: order.get(value.metric, len(order)))


def tried_points(workspace: WorkspaceFolder, run_ids: Sequence[str]) -> list[TriedPoint]:
    """Every point that was tried, in the order of `points`."""
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
    """How one metric spreads over many points: over all of them, then by axis, in words."""
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
