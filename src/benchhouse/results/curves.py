"""Curves as plain values: two metrics against each other along a sweep, and metrics along an axis."""

from typing import Literal

from pydantic import Field

from benchhouse.results.numbers import change_texts, name_of, number, quantity
from benchhouse.schema.experiment import Direction
from benchhouse.schema.model import Model, empty_list

Ends = tuple[float, float]


class CurveMetric(Model):
    """A metric that is an axis of a curve."""

    metric: str
    stat: str
    unit: str
    direction: Direction

    @property
    def name(self) -> str:
        return name_of(self.metric, self.stat)


class CurvePoint(Model):
    """One point of a sweep."""

    point: int = Field(description="Index among the points that were given.")
    label: str
    run_id: str
    instance_digest: str
    place: float | None = Field(None, description="Where it is in the sweep.")
    x: float
    y: float
    n: int = Field(description="Trials.")
    frontier: bool = Field(
        description="No other point of the same test is as good on both and better on one, beyond error bounds."
    )


class AtLevel(Model):
    """The value of a curve at the requested level."""

    reach: Literal["met", "short", "beyond"] = Field(
        description="met; short: no point is as good as the level; beyond: all are better, and nothing is extrapolated."
    )
    value: float | None = None
    interval: Ends | None = Field(None, description="Null where a point has one trial only.")
    method: str = Field("", description="How the interval was made.")
    place: float | None = Field(None, description="Where in the sweep it would be.")
    n: int = Field(0, description="Trials of the least measured point that the value leans on.")
    nearest: int = Field(description="The point of the curve that comes nearest to the level.")
    mark: Literal["best", "median", "worst"] | None = None
    change: float | None = Field(None, description="Against the best of the same test, a fraction.")
    change_interval: Ends | None = None
    difference: float | None = Field(None, description="Against the best, in the metric's unit.")
    difference_interval: Ends | None = None
    p_adjusted: float | None = Field(None, description="After Holm's correction for all pairs of the same test.")
    verdict: str = Field("", description="In words; the interval that is shown decides for the pair.")


class TradeoffCurve(Model):
    """One target along its search parameter."""

    name: str
    along: str = Field("", description="The number along which its points differ; empty for a single point.")
    case: int = Field(description="Curves of the same case were put to the same test.")
    points: list[CurvePoint]
    line: list[tuple[float, float]] = Field(description="The curve, from end to end.")
    at: AtLevel | None = None

    @property
    def sweep(self) -> str:
        return self.along.removeprefix("target.")

    def where(self, point: CurvePoint) -> str:
        """Return text such as ` (ef_search 64)`; empty for a single point."""
        return f" ({self.sweep} {number(point.place)})" if self.along else ""

    def named(self, point: CurvePoint) -> str:
        """Return text such as `hnsw ef_search 64`."""
        return f"{self.name} {self.sweep} {number(point.place)}" if self.along else self.name


class Tradeoff(Model):
    """Curves of several targets, and each one's value at one level."""

    x: CurveMetric
    y: CurveMetric
    level: float | None = None
    scales: str = Field(description="On which scales the curves were interpolated.")
    confidence: float
    curves: list[TradeoffCurve]
    sentences: list[str] = Field(default_factory=empty_list, description="What it comes to, the most important first.")
    notes: list[str] = Field(default_factory=empty_list)

    def rows(self) -> "list[TradeoffRow]":
        """Return the curves at the level as texts: those that meet it, best first, then the others."""
        worth = -1.0 if self.y.direction == "higher" else 1.0
        met = [curve for curve in self.curves if curve.at and curve.at.value is not None]
        met.sort(key=lambda curve: (curve.case, worth * ((curve.at and curve.at.value) or 0.0)))
        return [TradeoffRow.of(self, curve) for curve in [*met, *(curve for curve in self.curves if curve not in met)]]


class TradeoffRow(Model):
    """One row of a table."""

    name: str
    mark: str = ""
    value: str
    interval: str = ""
    change: str = ""
    place: str
    n: str = ""
    verdict: str

    @classmethod
    def of(cls, tradeoff: Tradeoff, curve: TradeoffCurve) -> "TradeoffRow":
        at = curve.at
        assert at
        nearest = curve.points[at.nearest]
        if at.value is None:
            quality, short = quantity(nearest.x, tradeoff.x.unit), at.reach == "short"
            bound = ("≤" if tradeoff.y.direction == "lower" else "≥") + number(nearest.y)
            return cls(
                name=curve.name,
                value="" if short else bound,
                place=number(nearest.place) if curve.along else "",
                verdict=f"not reached: {quality} at best" if short else f"better everywhere: {quality} at worst",
            )
        ends = at.change_interval, at.difference_interval
        change, interval = change_texts(at.change, ends[0], at.difference, ends[1], tradeoff.y.unit)
        return cls(
            name=curve.name,
            mark=at.mark or "",
            value=number(at.value, _half(at.interval)),
            interval=span(at.interval) if at.interval else "none",
            change="" if at.difference is None else change + (f" ({interval})" if interval else ""),
            place=f"{curve.sweep}≈{number(at.place, abs(at.place or 1.0) / 100.0)}" if curve.along else "",
            n=str(at.n),
            verdict=at.verdict,
        )


class FittedNumber(Model):
    """A number of a law, with both ends of its interval."""

    value: float | None = Field(description="Null for a place that is never reached.")
    low: float | None = Field(description="Null, as `high` then, where a stage has one trial only.")
    high: float | None = Field(description="Null beside a `low` that is none: without end.")


class ScalingLaw(Model):
    """A law fitted to a curve."""

    law: Literal["amdahl", "gustafson", "usl"]
    rate: float = Field(description="Throughput of one unit.")
    parameters: dict[str, FittedNumber] = Field(description="s; of usl sigma (contention) and kappa (coherence).")
    misfit: float = Field(description="The largest distance of a stage from the law, as a share of the latter.")
    fits: bool = Field(description="Whether no stage is more than 10% off, and units don't help each other.")
    pays_to: FittedNumber = Field(description="Where efficiency against the first stage falls to 50%.")
    peak: FittedNumber | None = Field(None, description="Of usl: where throughput is highest.")
    line: list[tuple[float, float]] = Field(description="The law, from end to end.")


class CurveStage(Model):
    """One value of an axis, with its measurements."""

    point: int = Field(description="Index among the points that were given.")
    place: float
    n: int
    throughput: float = Field(description="Or the time that the work takes, where that is what was asked for.")
    throughput_interval: Ends | None = None
    times: float | None = Field(None, description="Speed-up: throughput against the first stage.")
    times_interval: Ends | None = None
    efficiency: float | None = Field(None, description="Of that, the share that keeps step with the axis.")
    efficiency_interval: Ends | None = None
    latency: dict[str, float] = Field(default_factory=dict, description="By statistic.")


class ScalingCurve(Model):
    """Throughput and latency of one target along an axis."""

    name: str
    case: int = Field(description="Curves of the same case were put to the same test.")
    stages: list[CurveStage]
    kind: Literal["stops", "grows", "flat", "unclear"] | None = Field(
        None, description="Null with fewer than three stages."
    )
    stops_at: float | None = Field(None, description="Where 95% of the highest throughput is reached.")
    stops_interval: Ends | None = None
    spread_known: bool = Field(False, description="Whether the interval holds the spread over trials, too.")
    sentence: str = ""
    laws: list[ScalingLaw] = Field(default_factory=empty_list, description="None for fewer than three stages.")
    pays: str = Field("", description="Where more units stop paying: efficiency below 50%.")


class Scaling(Model):
    """Several targets along one axis."""

    along: str
    throughput: CurveMetric
    latency: CurveMetric | None = None
    resource: bool = Field(description="Whether the axis adds load or resources, so that efficiency means something.")
    kind: Literal["strong", "weak"] | None = Field(None, description="As the scenario declares it.")
    confidence: float
    curves: list[ScalingCurve]
    notes: list[str] = Field(default_factory=empty_list)

    @property
    def axis(self) -> str:
        return self.along.removeprefix("target.").removeprefix("resources.")

    @property
    def title(self) -> str:
        """Text such as `Strong scaling along nodes`."""
        return f"{self.kind.capitalize()} scaling along {self.axis}" if self.kind else f"Along {self.axis}"


def span(ends: Ends) -> str:
    """Return both ends of an interval, with digits according to its width."""
    half = _half(ends)
    return f"{number(ends[0], half)} to {number(ends[1], half)}"


def _half(ends: Ends | None) -> float | None:
    return (ends[1] - ends[0]) / 2.0 or None if ends else None
