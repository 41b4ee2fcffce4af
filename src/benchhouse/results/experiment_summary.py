"""summary.json of a run: its metrics and telemetry by point, over all trials of the point.

It is computed from the tables, so it can be created again at any time; the evidence of each trial is unchanged.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Literal

from pydantic import Field
from pydantic_core import from_json

from benchhouse.analysis.summary import QUANTILE, shaky_quantiles, summarise
from benchhouse.results.run_points import PointValue, points
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.model import Model, empty_list
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse


class MetricOverTrials(Model):
    """One statistic of one metric: how it spreads over the trials of a point."""

    metric: str
    stat: str = Field(description="value, or what each trial computed from its samples: mean, p99, ...")
    unit: str
    n: int = Field(description="Trials that succeeded and have it.")
    min: float
    avg: float
    max: float
    p50: float
    p90: float
    p99: float
    too_few_for: list[str] = Field(default_factory=empty_list, description="Percentiles that `n` trials can't carry.")


class SeriesOverTrials(Model):
    """Telemetry of one series in the steady phase of the trials, or in the whole trial if no steady phase is marked."""

    scope: str = Field(description="node, trial (all below the worker), service:NAME, gpu0, ...")
    series: str
    unit: str
    phase: str
    trials: int
    n: int = Field(description="Samples of all trials together.")
    min: float | None = None
    avg: float = Field(description="Mean of the trials' means, by the samples behind each.")
    max: float | None = None
    p50: tuple[float, float] | None = Field(None, description="The percentile of all samples lies between these.")
    p95: tuple[float, float] | None = None
    p99: tuple[float, float] | None = None


class PointSummary(Model):
    """One point of the run."""

    point: dict[str, Any] = Field(description="What varies within the run: axis -> value.")
    target: str | None = None
    instance_digest: str
    outcomes: dict[str, int] = Field(description="Trials by outcome, warm-ups aside.")
    trials: list[str] = Field(description="Their ids: folders below `results`.")
    metrics: list[MetricOverTrials]
    telemetry: list[SeriesOverTrials]


class ExperimentSummary(Model):
    """The content of summary.json."""

    schema_version: Literal[1] = 1
    run_id: str
    scenario: str
    experiment: str
    version: str
    results: str = Field(description="Folder of the sealed trials.")
    quantile: str = Field(QUANTILE, description="How percentiles over trials are read.")
    points: list[PointSummary]


def experiment_summary(workspace: WorkspaceFolder, run_id: str) -> ExperimentSummary | None:
    """Return the summary of the collected trials of a run; None if there are none."""
    with Warehouse.open(workspace) as warehouse:
        rows = queries.trials(warehouse, [run_id]).dicts()
        series = queries.telemetry_of_points(warehouse, [run_id]).dicts()
    counted = [row for row in rows if not row["warmup"]]
    if not counted:
        return None
    numbers = _by_point(vars(value) for value in points(workspace, [run_id]))
    seen, first = _by_point(series), counted[0]
    return ExperimentSummary(
        run_id=run_id,
        scenario=first["scenario"],
        experiment=first["experiment"],
        version=first["experiment_version"],
        results=str(workspace.results / first["scenario"]),
        points=[
            _point(trials, [PointValue(**row) for row in numbers.get(digest, [])], seen.get(digest, []))
            for digest, trials in _by_point(counted).items()
        ],
    )


def _by_point(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    ordered = sorted(rows, key=lambda row: str(row["instance_digest"]))  # stable: the order within a point is unchanged
    return {digest: list(group) for digest, group in groupby(ordered, key=lambda row: str(row["instance_digest"]))}


def _point(trials: list[Mapping[str, Any]], numbers: list[PointValue], series: list[Mapping[str, Any]]) -> PointSummary:
    first, outcomes = trials[0], [str(trial["outcome"]) for trial in trials]
    return PointSummary(
        point=from_json(first["axes"]) if first["axes"] else {},
        target=first["target_name"],
        instance_digest=first["instance_digest"],
        outcomes={outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        trials=[trial["trial_id"] for trial in trials],
        metrics=[_metric(value) for value in numbers],
        telemetry=[_series(row) for row in series],
    )


def _metric(value: PointValue) -> MetricOverTrials:
    over = summarise(value.values)
    return MetricOverTrials(
        metric=value.metric, stat=value.stat, unit=value.unit, n=over.n, min=over.min, avg=over.mean, max=over.max,
        p50=over.p50, p90=over.p90, p99=over.p99,
        too_few_for=[name for name in shaky_quantiles(over.n) if name in ("p90", "p99")],
    )  # fmt: skip


def _series(row: Mapping[str, Any]) -> SeriesOverTrials:
    """Summarize a series. Percentiles of trials cannot be averaged; that of all samples lies between the smallest and
    the largest.
    """
    between = {
        name: (row[f"{name}_least"], row[f"{name}_most"]) if row[f"{name}_least"] is not None else None
        for name in ("p50", "p95", "p99")
    }
    plain = {name: row[name] for name in ("scope", "series", "unit", "phase", "trials", "n", "min", "avg", "max")}
    return SeriesOverTrials(**plain, **between)
