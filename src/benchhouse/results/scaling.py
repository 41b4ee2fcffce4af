"""Services along an axis of load or size: throughput, latency, efficiency, and where each one stops scaling."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from benchhouse.analysis import scaling as analysis
from benchhouse.evidence.folder import read_spec
from benchhouse.results.curves import CurveMetric, CurveStage, Scaling, ScalingCurve
from benchhouse.results.numbers import INVALID, SEED, STATS, mean_interval, number
from benchhouse.results.scaling_laws import fit_laws, pays_sentence
from benchhouse.results.series import RESOURCES as GIVEN
from benchhouse.results.series import (
    Column,
    FlatPoint,
    MetricSample,
    PointSeries,
    followers,
    full_name,
    numbers_given,
    sweeps,
)
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.scenario import ScalingKind

RESOURCES = frozenset({
    "batch", "clients", "concurrency", "connections", "cpus", "depth", "gpus", "instances", "iodepth", "nodes",
    "partitions", "processes", "queue_depth", "ranks", "replicas", "rps", "shards", "streams", "tasks", "threads",
    "users", "workers",
})  # fmt: skip
"""Axes along which twice as much should give twice the throughput; a size, for example, is not one."""
Missing = Mapping[float, str]
"""Values of the axis without a valid number, and why."""
_LATENCIES = ("p50", "p99")
_TIMES = ("s", "ms", "us", "ns", "min", "h")
_FEW = "Three values of an axis or more show where scaling stops."
_FEW_FOR_USL = "The universal scalability law is fitted to four values of an axis or more."
_FEWEST = 2
_MOST = 24


def declared_kind(folders: Iterable[TrialFolder]) -> ScalingKind | None:
    """Return the kind of scaling that the scenarios of these sealed trials declare; None if they differ, or the
    evidence is gone.
    """
    kinds = set()
    for folder in folders:
        with suppress(OSError, ValidationError):
            kinds.add(read_spec(folder).scaling)
    return kinds.pop() if len(kinds) == 1 else None


def make_scaling(
    members: Sequence[FlatPoint],
    throughput: Column,
    latency: str | None,
    along: str,
    *,
    confidence: float = 0.95,
    failed: Sequence[FlatPoint] = (),
    kind: ScalingKind | None = None,
) -> Scaling:
    """Return the curve of every target along the axis. `latency` is a metric whose p50 and p99 are included, if it has
    them.

    `failed` are points that were tried without a valid number: a curve must not look as if nothing beyond it was tried.
    With a declared `kind` of scaling, the metric may be the time that the work takes; if it is weak, the points of a
    curve may also differ in the size of the work.
    """
    usable = [member for member in members if throughput in member.samples]
    if not usable:
        raise BenchError(f"no point has {throughput[0]}")
    full = full_name(usable, along)
    kind = kind if full in _declared_axes(usable) else None
    resource = bool(kind) or full.rpartition(".")[2] in RESOURCES
    beside = followers([*usable, *failed], full) if kind == "weak" else frozenset[str]()
    series = [curve for curve in sweeps(usable, full, beside) if len(curve.members) >= _FEWEST]
    if not series:
        raise BenchError(
            f"no curve along {along}: no two points differ in it alone",
            "sweep it: give it a list of values in the scenario, and run that",
        )
    sample = usable[0].samples[throughput]
    if sample.direction != "higher" and not (kind and sample.direction == "lower" and sample.unit in _TIMES):
        hint = "" if kind else "a time is one where the scenario says what scales: scaling: strong, or weak"
        raise BenchError(f"{throughput[0]} is no throughput: more of it is not better", hint)
    cases = list(dict.fromkeys(curve.case for curve in series))
    short = any(len(curve.members) <= _FEWEST for curve in series)
    rest = [*(member for member in members if member not in usable), *failed]
    gone = [_missing(curve, rest, throughput, beside) for curve in series]
    asked = _Asked(throughput, latency, resource, kind, confidence)
    curves = [_curve(curve, cases.index(curve.case), asked, gaps) for curve, gaps in zip(series, gone, strict=True)]
    return Scaling(
        along=full,
        throughput=CurveMetric(metric=throughput[0], stat=throughput[1], unit=sample.unit, direction=sample.direction),
        latency=_latency(usable, latency) if latency != throughput[0] else None,
        resource=resource,
        kind=kind,
        confidence=confidence,
        curves=curves,
        notes=[
            *([f"Along with {full.removeprefix(GIVEN)} grow: {', '.join(sorted(beside))}."] if beside else []),
            *([_FEW] if short else []),
            *([_FEW_FOR_USL] if any(len(curve.laws) == 1 for curve in curves) else []),
            *(_gap_note(curve, gaps) for curve, gaps in zip(series, gone, strict=True) if gaps),
        ],
    )


def _declared_axes(members: Sequence[FlatPoint]) -> set[str]:
    """Return the axes of a declared kind of scaling: resources of a trial, otherwise load, otherwise any varying
    number.
    """
    varying = {key for key, values in numbers_given(members).items() if len(values) > 1}
    given = {key for key in varying if key.startswith(GIVEN)}
    return given or {key for key in varying if key.rpartition(".")[2] in RESOURCES} or varying


def _missing(
    series: PointSeries, members: Sequence[FlatPoint], throughput: Column, beside: Collection[str] = ()
) -> Missing:
    """Return the places of the axis at which a target was also tried without a valid number."""
    every = sweeps([*series.members, *members], series.along, beside)
    whole = next(each for each in every if series.members[0] in each.members)
    return {
        whole.place(member): INVALID if throughput in member.refused else member.gone or "not measured"
        for member in whole.members
        if member not in series.members
    }


def _gap_note(series: PointSeries, missing: Missing) -> str:
    axis = series.along.rpartition(".")[2]
    return f"{series.name} was also tried at {axis} {_gaps(missing)}: no valid number there."


def _gaps(missing: Missing) -> str:
    """Return text such as `32 (INVALID), 64 (failed)`."""
    return ", ".join(f"{number(place)} ({why})" for place, why in missing.items())


def automatic(
    members: Sequence[FlatPoint],
    throughput: Column | None,
    latency: str | None,
    leave: Collection[str] = (),
    confidence: float = 0.95,
    failed: Sequence[FlatPoint] = (),
    kind: ScalingKind | None = None,
) -> list[Scaling]:
    """Return scalings for a report: along every number of the workload with at least three values, and of the target if
    it is load.

    `leave` names numbers that are something else: search parameters. A scaling with more curves than anyone would read
    is left out. With a declared `kind`, two values make a curve, because it was requested.
    """
    usable = [member for member in members if throughput in member.samples] if throughput else []
    if not throughput or not usable:
        return []
    made = []
    for along in sorted(_axes(usable, _FEWEST if not kind else 1) - set(leave)):
        try:
            curves = make_scaling(members, throughput, latency, along, confidence=confidence, failed=failed, kind=kind)
        except BenchError:  # no curve, or not a throughput
            continue
        longest = max(len(curve.stages) for curve in curves.curves)
        if len(curves.curves) <= _MOST and (longest > _FEWEST or curves.kind):
            made.append(curves)
    return made


def _axes(members: Sequence[FlatPoint], more_than: int) -> set[str]:
    """Return names of numbers that vary, without those of a target, which are its settings, unless they are load or
    resources.
    """
    varying = [key for key, values in numbers_given(members).items() if len(values) > more_than]
    return {key for key in varying if not key.startswith("target.") or key.rpartition(".")[2] in RESOURCES}


def _latency(members: Sequence[FlatPoint], metric: str | None) -> CurveMetric | None:
    for member in members:
        for (name, stat), sample in member.samples.items():
            if name == metric and stat in (*_LATENCIES, "value", "mean"):
                return CurveMetric(metric=name, stat=stat, unit=sample.unit, direction="lower")
    return None


@dataclass(frozen=True)
class _Asked:
    """The settings by which curves are made from the members."""

    throughput: Column
    latency: str | None
    resource: bool
    kind: ScalingKind | None
    confidence: float

    def rates(self, sample: MetricSample, place: float) -> Sequence[float]:
        """Return work per second; with weak scaling, the work grows with the place."""
        if sample.direction == "higher":
            return sample.values
        if min(sample.values) <= 0.0:
            raise BenchError(
                f"{self.throughput[0]} has a time of {min(sample.values):g}: no speed-up can be made of it"
            )
        return [(place if self.kind == "weak" else 1.0) / value for value in sample.values]


def _curve(series: PointSeries, case: int, asked: _Asked, missing: Missing) -> ScalingCurve:
    samples = [member.samples[asked.throughput] for member in series.members]
    places = [series.place(member) for member in series.members]
    confidence = asked.confidence
    stages = [
        analysis.ScalingStage(place, asked.rates(sample, place)) for place, sample in zip(places, samples, strict=True)
    ]
    grown = analysis.growth(stages, seed=SEED, confidence=confidence) if places[0] > 0 else []
    shown = ("times", "times_interval", *(("efficiency", "efficiency_interval") if asked.resource else ()))
    measured = [
        CurveStage(
            point=member.at,
            place=places[at],
            n=len(sample.values),
            throughput=sum(sample.values) / len(sample.values),
            throughput_interval=_interval(sample, confidence),
            **({name: getattr(grown[at], name) for name in shown} if grown else {}),
            latency=_latencies(member, asked.latency) if asked.latency != asked.throughput[0] else {},
        )
        for at, (member, sample) in enumerate(zip(series.members, samples, strict=True))
    ]
    stop = analysis.find_stop(stages, seed=SEED, confidence=confidence)
    laws = fit_laws(stages, asked.kind, confidence) if asked.resource else []
    axis = series.along.rpartition(".")[2]
    return ScalingCurve(
        name=series.name,
        case=case,
        stages=measured,
        kind=stop.kind if stop else None,
        stops_at=stop.at if stop else None,
        stops_interval=stop.interval if stop else None,
        spread_known=bool(stop and stop.spread_known),
        sentence=_sentence(series, stop, confidence, missing),
        laws=laws,
        pays=pays_sentence(laws, axis, measured, confidence) if asked.resource else "",
    )


def _interval(sample: MetricSample, confidence: float) -> tuple[float, float] | None:
    n = len(sample.values)
    mean = sum(sample.values) / n
    stdev = (sum((value - mean) ** 2 for value in sample.values) / (n - 1)) ** 0.5 if n > 1 else None
    return mean_interval(mean, stdev, n, min(sample.values), confidence)


def _latencies(member: FlatPoint, metric: str | None) -> dict[str, float]:
    present = {stat: sample.values for (name, stat), sample in member.samples.items() if name == metric}
    wanted = [stat for stat in _LATENCIES if stat in present] or [stat for stat in STATS if stat in present][:1]
    return {stat: sum(present[stat]) / len(present[stat]) for stat in wanted}


def _sentence(series: PointSeries, stop: analysis.Stop | None, confidence: float, missing: Missing) -> str:
    axis = series.along.rpartition(".")[2]
    first, last = number(series.place(series.members[0])), number(series.place(series.members[-1]))
    if stop is None:
        return f"{series.name}: too few values of {axis} to say where it stops scaling."
    if stop.kind == "flat":
        return f"{series.name} shows no gain beyond {axis} {first}, the lowest that was measured."
    if stop.kind == "unclear":
        return f"{series.name}: the trials differ too much to say where it stops scaling; more repetitions would."
    if stop.kind == "grows":
        beyond = {place: why for place, why in missing.items() if place > series.place(series.members[-1])}
        held = f"the highest with a valid number; also tried: {_gaps(beyond)}"
        return f"{series.name} still scales at {axis} {last}, {held if beyond else 'the highest tried'}."
    assert stop.at and stop.interval and stop.between
    half = (stop.interval.hi - stop.interval.lo) / 2.0
    ends = " to ".join(number(end, half) for end in stop.interval)
    sure = f"{confidence * 100:g}% interval {ends}" if stop.spread_known else f"{ends}, spread over trials unknown"
    tried = " and ".join(number(end) for end in stop.between)
    return (
        f"{series.name} stops scaling at about {axis} {number(stop.at, half)} ({sure}; measured at {tried}): "
        f"{analysis.SHARE * 100:g}% of its highest throughput is reached there."
    )
