"""Services along an axis of load or size: throughput, latency, efficiency, and where each one stops scaling."""

from collections.abc import Collection, Mapping, Sequence

from benchhouse.analysis import scaling as analysis
from benchhouse.results.curves import Axis, Scaling, ScalingCurve, Stage
from benchhouse.results.numbers import INVALID, SEED, STATS, mean_interval, number
from benchhouse.results.series import Column, Member, Sample, Series, numbers_given, sweeps
from benchhouse.schema.errors import BenchError

RESOURCES = frozenset({
    "batch", "clients", "concurrency", "connections", "cpus", "depth", "gpus", "instances", "iodepth", "nodes",
    "partitions", "processes", "queue_depth", "replicas", "rps", "shards", "streams", "tasks", "threads", "users",
    "workers",
})  # fmt: skip
"""Axes along which twice as much should give twice as much; a size, say, is none."""
Missing = Mapping[float, str]
"""Values of the axis without a valid number, and why."""
_LATENCIES = ("p50", "p99")
_FEWEST = 2
_MOST = 24


def make_scaling(
    members: Sequence[Member],
    throughput: Column,
    latency: str | None,
    along: str,
    *,
    confidence: float = 0.95,
    failed: Sequence[Member] = (),
) -> Scaling:
    """Every target along the axis. `latency` is a metric of which p50 and p99 are told, where it has them. `failed` are
    points that were tried and gave no number: no curve is to look as if it had been tried no further."""
    usable = [member for member in members if throughput in member.samples]
    if not usable:
        raise BenchError(f"no point has {throughput[0]}")
    series = [curve for curve in sweeps(usable, along) if len(curve.members) >= _FEWEST]
    if not series:
        raise BenchError(
            f"no curve along {along}: no two points differ in it alone",
            "sweep it: give it a list of values in the scenario, and run that",
        )
    full = series[0].along
    sample = usable[0].samples[throughput]
    if sample.direction != "higher":
        raise BenchError(f"{throughput[0]} is no throughput: more of it is not better")
    cases = list(dict.fromkeys(curve.case for curve in series))
    short = any(len(curve.members) <= _FEWEST for curve in series)
    resource = full.rpartition(".")[2] in RESOURCES
    rest = [*(member for member in members if member not in usable), *failed]
    gone = [_missing(curve, rest, throughput) for curve in series]
    return Scaling(
        along=full,
        throughput=Axis(metric=throughput[0], stat=throughput[1], unit=sample.unit, direction="higher"),
        latency=_latency(usable, latency),
        resource=resource,
        confidence=confidence,
        curves=[
            _curve(curve, cases.index(curve.case), throughput, latency, resource, confidence, gaps)
            for curve, gaps in zip(series, gone, strict=True)
        ],
        notes=[
            *(["Three values of an axis or more show where scaling stops."] if short else []),
            *(_gap_note(curve, gaps) for curve, gaps in zip(series, gone, strict=True) if gaps),
        ],
    )


def _missing(series: Series, members: Sequence[Member], throughput: Column) -> Missing:
    """Where along the axis a target was tried too, and has no valid number."""
    every = sweeps([*series.members, *members], series.along)
    whole = next(each for each in every if series.members[0] in each.members)
    return {
        whole.place(member): INVALID if throughput in member.refused else member.gone or "not measured"
        for member in whole.members
        if member not in series.members
    }


def _gap_note(series: Series, missing: Missing) -> str:
    axis = series.along.rpartition(".")[2]
    return f"{series.name} was also tried at {axis} {_gaps(missing)}: no valid number there."


def _gaps(missing: Missing) -> str:
    """`32 (INVALID), 64 (failed)`."""
    return ", ".join(f"{number(place)} ({why})" for place, why in missing.items())


def automatic(
    members: Sequence[Member],
    throughput: Column | None,
    latency: str | None,
    leave: Collection[str] = (),
    confidence: float = 0.95,
    failed: Sequence[Member] = (),
) -> list[Scaling]:
    """For a report: along every number of the workload with three values or more, and of the target if it is load.

    `leave` names numbers that are something else: search parameters. More curves than anyone would read are none.
    """
    usable = [member for member in members if throughput in member.samples] if throughput else []
    if not throughput or not usable or any(member.samples[throughput].direction != "higher" for member in usable):
        return []
    made = []
    for along in sorted(_axes(usable) - set(leave)):
        longest = [sweep for sweep in sweeps(usable, along) if len(sweep.members) > _FEWEST]
        if longest and len(longest) <= _MOST:
            made.append(make_scaling(members, throughput, latency, along, confidence=confidence, failed=failed))
    return made


def _axes(members: Sequence[Member]) -> set[str]:
    """Names of numbers that vary: those of a target are its settings, unless they are load or resources."""
    varying = [key for key, values in numbers_given(members).items() if len(values) > _FEWEST]
    return {key for key in varying if not key.startswith("target.") or key.rpartition(".")[2] in RESOURCES}


def _latency(members: Sequence[Member], metric: str | None) -> Axis | None:
    for member in members:
        for (name, stat), sample in member.samples.items():
            if name == metric and stat in (*_LATENCIES, "value", "mean"):
                return Axis(metric=name, stat=stat, unit=sample.unit, direction="lower")
    return None


def _curve(
    series: Series,
    case: int,
    throughput: Column,
    latency: str | None,
    resource: bool,
    confidence: float,
    missing: Missing,
) -> ScalingCurve:
    samples = [member.samples[throughput] for member in series.members]
    stages = [
        analysis.Stage(series.place(member), sample.values)
        for member, sample in zip(series.members, samples, strict=True)
    ]
    grown = analysis.growth(stages, seed=SEED, confidence=confidence) if stages[0].place > 0 else []
    shown = ("times", "times_interval", *(("efficiency", "efficiency_interval") if resource else ()))
    measured = [
        Stage(
            point=member.at,
            place=stages[at].place,
            n=len(sample.values),
            throughput=sum(sample.values) / len(sample.values),
            throughput_interval=_interval(sample, confidence),
            **({name: getattr(grown[at], name) for name in shown} if grown else {}),
            latency=_latencies(member, latency),
        )
        for at, (member, sample) in enumerate(zip(series.members, samples, strict=True))
    ]
    stop = analysis.find_stop(stages, seed=SEED, confidence=confidence)
    return ScalingCurve(
        name=series.name,
        case=case,
        stages=measured,
        kind=stop.kind if stop else None,
        stops_at=stop.at if stop else None,
        stops_interval=stop.interval if stop else None,
        spread_known=bool(stop and stop.spread_known),
        sentence=_sentence(series, stop, confidence, missing),
    )


def _interval(sample: Sample, confidence: float) -> tuple[float, float] | None:
    n = len(sample.values)
    mean = sum(sample.values) / n
    stdev = (sum((value - mean) ** 2 for value in sample.values) / (n - 1)) ** 0.5 if n > 1 else None
    return mean_interval(mean, stdev, n, min(sample.values), confidence)


def _latencies(member: Member, metric: str | None) -> dict[str, float]:
    present = {stat: sample.values for (name, stat), sample in member.samples.items() if name == metric}
    wanted = [stat for stat in _LATENCIES if stat in present] or [stat for stat in STATS if stat in present][:1]
    return {stat: sum(present[stat]) / len(present[stat]) for stat in wanted}


def _sentence(series: Series, stop: analysis.Stop | None, confidence: float, missing: Missing) -> str:
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
