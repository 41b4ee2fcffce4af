"""ReportData: the content of a report as one plain value. Writers take only this value and read no files or tables."""

from collections import Counter
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, computed_field

from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.load_certificates import LoadFacts
from benchhouse.results.machine import MachineFacts
from benchhouse.results.numbers import change_texts, name_of
from benchhouse.results.ranks import RankFacts
from benchhouse.schema.experiment import Direction
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.query import Cell, QuerySpec


class PointNumber(Model):
    """One number of one point: the mean over its trials, with its spread and its lineage."""

    cell: Cell
    metric: str
    stat: str
    direction: Direction | None = None
    primary: bool = False
    stdev: float | None = Field(None, description="Over trials; null for one trial.")
    low: float | None = Field(None, description="Lower end of the 95% interval of the mean.")
    high: float | None = None
    doubt: str = Field("", description="Why low to high is a spread and no interval, where the values show that.")
    minimum: float
    maximum: float
    values: list[float] = Field(description="One per trial, in the order of cell.trials.")
    samples: int | None = Field(None, description="Samples behind the number in one trial, on average.")
    shaky: str = Field("", description="Why a percentile should not be trusted.")
    error_bound: float | None = Field(
        None, description="How far a value can be off, in its unit, the most of its trials; null where none says."
    )

    @computed_field(description="Names its cell.")  # type: ignore[prop-decorator]
    @property
    def ref(self) -> str:
        return self.cell.ref

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def column(self) -> tuple[str, str, str]:
        """The key by which numbers of different points are comparable."""
        return self.metric, self.stat, self.cell.unit


class RefusedFigure(Model):
    """A number that is INVALID in every trial of its point: its error bound exceeds the limit."""

    metric: str
    stat: str
    unit: str
    primary: bool = False

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def column(self) -> tuple[str, str, str]:
        return self.metric, self.stat, self.unit


class Point(Model):
    """One instance of one run and its numbers."""

    label: str
    run_id: str
    target_name: str
    target: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    instance_digest: str
    benchmark_case_id: str
    workload_spec_digest: str
    executor: str = Field("", description="Where its trials ran; several where the run was finished elsewhere.")
    numbers: list[PointNumber]
    refused: list[RefusedFigure] = Field(default_factory=empty_list, description="INVALID in every trial.")

    @cached_property
    def by_column(self) -> dict[tuple[str, str, str], PointNumber]:
        columns: dict[tuple[str, str, str], PointNumber] = {}
        for number in self.numbers:
            columns.setdefault(number.column, number)
        return columns

    def number(self, column: tuple[str, str, str]) -> PointNumber | None:
        return self.by_column.get(column)


class RunFacts(Model):
    """One run, from its ledger and its trials."""

    run_id: str
    started: str | None = None
    ended: str | None = None
    executor: str = ""
    runtime: str = ""
    plan_digest: str = ""
    experiment: str = ""
    version: str = ""
    distribution: str = Field("", description="Distribution that provides the experiment, with its version.")
    outcomes: dict[str, int] = Field(default_factory=dict, description="Trials by outcome.")


class TrialFacts(Model):
    """One trial; the list in ReportData is in order of execution."""

    trial_id: str
    run_id: str
    outcome: str
    started: str | None = None
    folder: str = ""


class FailureFacts(Model):
    """One trial that is excluded from all numbers, and how to fix it."""

    trial_id: str
    run_id: str
    point: str = ""
    outcome: str
    code: str = ""
    message: str = ""
    log_tail: str = ""
    folder: str = ""
    rerun: str = Field("", description="The exact command that tries it again.")


class WarningGroup(Model):
    """All warnings with one code."""

    code: str
    count: int = Field(description="Trials that carry it.")
    messages: list[str] = Field(description="Different messages, the most frequent first; a few.")


class RunEnvironment(Model):
    """The circumstances of a run, from one of its sealed trials."""

    run_id: str
    trial_id: str
    hosts: list[str]
    cpu: str = ""
    memory: str = ""
    kernel: str = ""
    python: str = ""
    package_lock_digest: str = ""
    git_commit: str | None = None
    git_dirty: bool | None = None
    limits: dict[str, Any] = Field(default_factory=dict, description="What was asked and what enforced it.")
    other: dict[str, Any] = Field(default_factory=dict, description="Further hardware and driver facts.")


class RankingPlace(Model):
    """One place of a ranking."""

    point: int = Field(description="Index in ReportData.points.")
    place: int
    mark: Literal["best", "median", "worst"] | None = None
    change: float | None = Field(None, description="Against the best, a fraction.")
    low: float | None = Field(None, description="95% interval of the change, for this pair alone.")
    high: float | None = None
    difference: float | None = Field(None, description="Against the best, in the metric's unit.")
    difference_low: float | None = Field(None, description="95% interval of the difference, for this pair alone.")
    difference_high: float | None = None
    verdict: str = Field(description="In words, after correction for the number of pairs.")

    def gap_texts(self, unit: str) -> tuple[str, str]:
        """Return the change relative to the best and its interval as texts; empty for the best itself."""
        if self.difference is None:
            return "", ""
        change = (self.low, self.high) if self.low is not None and self.high is not None else None
        low, high = self.difference_low, self.difference_high
        ends = (low, high) if low is not None and high is not None else None
        return change_texts(self.change, change, self.difference, ends, unit)


class Ranking(Model):
    """All points in order by one metric."""

    metric: str
    stat: str
    unit: str
    direction: Direction
    sentence: str
    standings: list[RankingPlace] = Field(description="The leaders, the median and the worst; all when they are few.")
    ranked: int = Field(description="Points that were ranked.")

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)

    @property
    def column(self) -> tuple[str, str, str]:
        return self.metric, self.stat, self.unit


class CaseRanking(Model):
    """Services side by side: targets that ran the same test."""

    case: str = Field(description="What tells this test from the others.")
    rankings: list[Ranking]


class AxisSpreadFacts(Model):
    """The effect of one axis of a large sweep on a metric: the median over all points at each of its values."""

    axis: str
    levels: int = Field(description="Values that it has.")
    highest: str
    highest_median: float
    lowest: str
    lowest_median: float
    explained: float = Field(description="Share of the variance over points that the axis accounts for.")


class SpreadFacts(Model):
    """How one leading metric spreads over the points of a large sweep."""

    metric: str
    stat: str
    unit: str
    direction: Direction | None
    points: int
    quartiles: list[float] = Field(description="Minimum, lower quartile, median, upper quartile, maximum.")
    axes: list[AxisSpreadFacts]

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)


class ReportData(Model):
    """Everything in a report."""

    schema_version: Literal[1] = 1
    scenario: str
    description: str = ""
    runs: list[RunFacts]
    points: list[Point] = Field(description="Those with a successful trial.")
    without_number: list[str] = Field(
        default_factory=empty_list, description="Points without a valid number, and why: `b ef=64 (INVALID)`."
    )
    trials: list[TrialFacts]
    headline: list[str] = Field(description="Plain sentences, the most important first.")
    rankings: list[Ranking] = Field(default_factory=empty_list, description="Where all were put to one test.")
    cases: list[CaseRanking] = Field(
        default_factory=empty_list, description="Where there are several tests: each that two targets were put to."
    )
    tradeoff: Tradeoff | None = Field(None, description="Curves of targets whose search parameter was swept.")
    spreads: list[SpreadFacts] = Field(default_factory=empty_list, description="Leading metrics of a large sweep.")
    statistics_left_out: int = Field(0, description="Statistics of each point of a large sweep that are not shown.")
    scalings: list[Scaling] = Field(default_factory=empty_list, description="Targets along each axis of load or size.")
    loads: list[LoadFacts] = Field(default_factory=empty_list, description="What load trials say of themselves.")
    machines: list[MachineFacts] = Field(
        default_factory=empty_list, description="Telemetry of one trial of each point, and of some that failed."
    )
    ranks: list[RankFacts] = Field(default_factory=empty_list, description="Ranks of one trial of each point.")
    failures: list[FailureFacts] = Field(default_factory=empty_list, description="Trials that were cut short.")
    invalid: list[FailureFacts] = Field(default_factory=empty_list, description="Trials that failed their own check.")
    warnings: list[WarningGroup] = Field(default_factory=empty_list)
    configuration: str = Field("", description="The effective scenario, YAML.")
    environments: list[RunEnvironment] = Field(default_factory=empty_list)
    queries: list[QuerySpec] = Field(default_factory=empty_list, description="What every cell was computed by.")

    def columns(self) -> list[PointNumber]:
        """Return one example number per (metric, stat, unit): leading ones first, metrics in order of appearance."""
        examples: dict[tuple[str, str, str], PointNumber] = {}
        for point in self.points:
            for column, number in point.by_column.items():
                examples.setdefault(column, number)
        return sorted(examples.values(), key=lambda number: not number.primary)

    def refused_columns(self) -> list[RefusedFigure]:
        """Return the refused figures for which no point has a number."""
        known = {column for point in self.points for column in point.by_column}
        figures = {figure.column: figure for point in self.points for figure in point.refused}
        return [figure for column, figure in figures.items() if column not in known]

    def several_executors(self) -> bool:
        """Whether a table of points must name the executor of each."""
        return len({point.executor for point in self.points}) > 1

    def outcomes(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for run in self.runs:
            total.update(run.outcomes)
        return dict(total)


class ReportFile(Model):
    """report.json: the report, and the data that `bench trace` needs for each of its numbers."""

    schema_version: Literal[1] = 1
    queries: dict[str, QuerySpec] = Field(description="By query_spec_digest.")
    cells: list[Cell]
    report: ReportData
