"""Targets at equal quality: each one's curve along its search parameter, and its value at the requested level."""

import math
from collections.abc import Sequence
from typing import Any

from benchhouse.analysis import pareto
from benchhouse.analysis.compare import HIDDEN
from benchhouse.analysis.pareto import Crossing, MetricScale, Vertex
from benchhouse.analysis.ranking import holm, mark_of
from benchhouse.documents.problems import did_you_mean
from benchhouse.results.curves import AtLevel, CurveMetric, CurvePoint, Tradeoff, TradeoffCurve, span
from benchhouse.results.invalid_trials import INVALID_HINT
from benchhouse.results.metric_names import parse_metric
from benchhouse.results.numbers import SEED, headline_stats, lead_texts, name_of, plural, quantity
from benchhouse.results.rankings import BEST_MEAN
from benchhouse.results.series import Column, FlatPoint, PointSeries, sweeps
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse.grouping import grouped

_LEVELS = (0.999, 0.99, 0.95, 0.9, 0.8, 0.5)
"""Levels for reports without a requested one: the highest that most curves meet is used."""
_FEWEST = 2
_NAMED = 5
_WORSE = "worse than the best"
_FIRST = ("the best", "the only one", BEST_MEAN)


def parse_level(text: str) -> tuple[str, float]:
    """Parse `recall=0.95`, or `recall=95%`. Raise BenchError for anything else."""
    metric, equals, value = (part.strip() for part in text.partition("="))
    number = value.removesuffix("%")
    try:
        level = float(number) / (100.0 if number != value else 1.0)
    except ValueError:
        level = math.nan
    if not (metric and equals) or not math.isfinite(level):
        raise BenchError(f"{text!r} is no level: expected METRIC=NUMBER", hint="For example: --at recall=0.95")
    return metric, level


def find_column(members: Sequence[FlatPoint], name: str) -> Column:
    """Return the metric of that name (its value, or its mean), or a statistic of one: `latency.p99`."""
    known: dict[str, list[str]] = {}
    for member in members:
        for metric, stat in member.samples:
            known.setdefault(metric, []).append(stat)
    for metric, stat in sorted(column for member in members for column in member.refused if column[0] not in known):
        known.setdefault(metric, []).append(stat)
    if wanted := parse_metric(name, known):
        return wanted.metric, wanted.stat or headline_stats(known[wanted.metric])[0]
    near = did_you_mean(name, known)
    hint = f"Did you mean {near}?" if near else f"A statistic of one: {next(iter(known), 'latency')}.p99"
    raise BenchError(f"no metric {name} here; there are {', '.join(sorted(known)) or 'none'}", hint=hint)


def make_tradeoff(
    members: Sequence[FlatPoint],
    x: Column,
    y: Column,
    level: float | None,
    *,
    along: str = "",
    confidence: float = 0.95,
    across: bool = True,
) -> Tradeoff:
    """Return the curves of all points with both metrics, and each one's `y` where its `x` reaches the level.

    Members without any number are listed in notes, because they are on no curve. If no two curves ran the same test,
    curves of different tests are compared anyway, unless `across` is false.
    """
    if x == y:
        raise BenchError(f"{name_of(*x)} can't be traded for itself", hint="Name another metric: --of METRIC")
    usable = [own for own in members if x in own.samples and y in own.samples and own.together(x, y)[0]]
    if not usable:
        hint = INVALID_HINT if any({x, y} & member.refused for member in members) else ""
        raise BenchError(f"no point has both {name_of(*x)} and {name_of(*y)}", hint=hint)
    axes = _axis(usable, x), _axis(usable, y)
    series = sweeps(usable, along)
    knots = [[Vertex(each.place(member), *member.together(x, y)) for member in each.members] for each in series]
    values = [value for row in knots for knot in row for value in knot.x]
    if level is not None:
        _check_level(axes[0], values, level)
    scales = (
        pareto.scale_of_level(values, axes[0].direction, values[0] if level is None else level),
        pareto.scale_of_value([value for row in knots for knot in row for value in knot.y]),
    )
    curves = _curves(series, knots, axes, scales)
    if level is not None:
        how: dict[str, Any] = {"x_scale": scales[0], "y_scale": scales[1], "direction": axes[0].direction}
        crossings = [pareto.cross(row, level, **how, seed=SEED, confidence=confidence) for row in knots]
        bounds = [_bound(each, crossing, y) for each, crossing in zip(series, crossings, strict=True)]
        curves = _at_level(curves, _groups(curves, across), crossings, bounds, scales[1], axes[1], confidence)
    notes = _left_out([member for member in members if member not in usable], axes)
    made = Tradeoff(
        x=axes[0],
        y=axes[1],
        level=level,
        scales=f"{scales[1].label(axes[1].name)} against {scales[0].label(axes[0].name)}, monotone cubic",
        confidence=confidence,
        curves=curves,
        notes=notes + _notes(curves),
    )
    return made.model_copy(update={"sentences": _sentences(made, across)}) if level is not None else made


def automatic(members: Sequence[FlatPoint], y: Column | None, confidence: float = 0.95) -> Tradeoff | None:
    """Return a trade-off for a report: the first share for which higher is better (recall, accuracy) against the
    throughput, if swept.
    """
    if y is None:
        return None
    for x in dict.fromkeys(column for member in members for column in member.samples):
        usable = [member for member in members if x in member.samples and y in member.samples]
        if x == y or not usable or not _is_share(usable, x):
            continue
        means = {member.at: sum(member.samples[x].values) / len(member.samples[x].values) for member in usable}
        if all(len({means[member.at] for member in series.members}) < _FEWEST for series in sweeps(usable)):
            continue
        options: dict[str, Any] = {"confidence": confidence, "across": False}  # one size is not better than another
        made = [make_tradeoff(members, x, y, level, **options) for level in _LEVELS]
        counts = [sum(curve.at is not None and curve.at.reach == "met" for curve in each.curves) for each in made]
        best = counts.index(max(counts))
        return made[best] if counts[best] else make_tradeoff(members, x, y, None, **options)
    return None


def _is_share(members: Sequence[FlatPoint], column: Column) -> bool:
    samples = [member.samples[column] for member in members]
    return all(
        sample.unit == "1" and sample.direction == "higher" and all(0.0 <= value <= 1.0 for value in sample.values)
        for sample in samples
    )


def _axis(members: Sequence[FlatPoint], column: Column) -> CurveMetric:
    name = name_of(*column)
    for what in ("unit", "direction"):
        kinds = sorted({str(getattr(member.samples[column], what)) for member in members})
        if len(kinds) > 1:
            raise BenchError(f"{name} can't be compared: its {what} is {' here and '.join(kinds)} there")
    sample = members[0].samples[column]
    if sample.direction not in ("higher", "lower"):
        raise BenchError(f"{name} has no direction: it is not known whether more of it is better")
    return CurveMetric(metric=column[0], stat=column[1], unit=sample.unit, direction=sample.direction)


def _check_level(axis: CurveMetric, values: Sequence[float], level: float) -> None:
    if axis.unit == "1" and level > 1.0 and all(0.0 <= value <= 1.0 for value in values):
        meant = f" Did you mean {level / 100.0:g}?" if level <= 100.0 else ""
        raise BenchError(f"{axis.name} is a share: it can't be {level:g}", hint=f"Between 0 and 1.{meant}")


def _curves(
    series: Sequence[PointSeries],
    knots: Sequence[Sequence[Vertex]],
    axes: tuple[CurveMetric, CurveMetric],
    scales: tuple[MetricScale, MetricScale],
) -> list[TradeoffCurve]:
    cases = list(dict.fromkeys(each.case for each in series))
    means = [[(sum(knot.x) / len(knot.x), sum(knot.y) / len(knot.y)) for knot in row] for row in knots]
    leading: set[tuple[int, int]] = set()
    for case in cases:
        places = [(at, k) for at, each in enumerate(series) if each.case == case for k in range(len(each.members))]
        bounds = [_bounds(series[at].members[k], axes) for at, k in places]
        kept = pareto.frontier([means[at][k] for at, k in places], (axes[0].direction, axes[1].direction), bounds)
        leading |= {places[index] for index in kept}
    curves = []
    for at, each in enumerate(series):
        points = [
            CurvePoint(
                point=member.at,
                label=member.label,
                run_id=member.run_id,
                instance_digest=member.digest,
                place=each.place(member) if each.along else None,
                x=means[at][k][0],
                y=means[at][k][1],
                n=len(knots[at][k].x),
                frontier=(at, k) in leading,
            )
            for k, member in enumerate(each.members)
        ]
        line = pareto.drawn(knots[at], *scales) if len(points) > 1 else []
        curves.append(
            TradeoffCurve(name=each.name, along=each.along, case=cases.index(each.case), points=points, line=line)
        )
    return curves


def _bounds(member: FlatPoint, axes: tuple[CurveMetric, CurveMetric]) -> tuple[float, float]:
    """Return the error bounds of its two numbers; 0 if unknown."""
    x, y = (member.samples[axis.metric, axis.stat].error_bound or 0.0 for axis in axes)
    return x, y


def _bound(series: PointSeries, crossing: Crossing, y: Column) -> float:
    """Return the error bound of the value at a level: the larger one of the two points around it."""
    if crossing.place is None:
        return 0.0
    places = [series.place(member) for member in series.members]
    first = max((place for place in places if place <= crossing.place), default=min(places))
    last = min((place for place in places if place >= crossing.place), default=max(places))
    around = [member for member in series.members if first <= series.place(member) <= last]
    return max(member.samples[y].error_bound or 0.0 for member in around)


def _left_out(members: Sequence[FlatPoint], axes: tuple[CurveMetric, CurveMetric]) -> list[str]:
    """Return notes on points that are not on the curve although they were tried, because they failed or were
    refused.
    """
    notes = []
    for axis in axes:
        invalid = [member.label for member in members if (axis.metric, axis.stat) in member.refused]
        if invalid:
            notes.append(f"{axis.name} is INVALID and on no curve: {shortened(invalid, _NAMED)}.")
    if gone := [f"{member.label} ({member.gone})" for member in members if member.gone]:
        notes.append(f"Without a valid number and on no curve: {shortened(gone, _NAMED)}.")
    columns = {(axis.metric, axis.stat) for axis in axes}
    if rest := sum(not columns & member.refused and not member.gone for member in members):
        notes.append(f"{plural(rest, 'point')} without {axes[0].name} or {axes[1].name} left out.")
    return notes


def _at_level(
    curves: Sequence[TradeoffCurve],
    groups: Sequence[Sequence[int]],
    crossings: Sequence[Crossing],
    bounds: Sequence[float],
    scale: MetricScale,
    axis: CurveMetric,
    confidence: float,
) -> list[TradeoffCurve]:
    """Return the curves with their values at the level, each compared with the best of its group."""
    shared = ("reach", "value", "interval", "method", "place", "n", "nearest")
    levels: list[dict[str, Any]] = [{name: getattr(crossing, name) for name in shared} for crossing in crossings]
    for group in groups:
        met = [at for at in group if crossings[at].value is not None]
        met.sort(key=lambda at: crossings[at].value or 0.0, reverse=axis.direction == "higher")
        own = [crossings[at] for at in met], [bounds[at] for at in met]
        for at, standing in zip(met, _standings(*own, scale, axis, confidence), strict=True):
            levels[at] |= standing
    return [curve.model_copy(update={"at": AtLevel(**level)}) for curve, level in zip(curves, levels, strict=True)]


def _groups(curves: Sequence[TradeoffCurve], across: bool) -> list[list[int]]:
    """Return groups of curves to compare, by index."""
    cases = grouped(range(len(curves)), lambda at: curves[at].case)
    alone = all(len(group) == 1 for group in cases.values())
    return [list(range(len(curves)))] if alone and across else list(cases.values())


def _standings(
    met: Sequence[Crossing], bounds: Sequence[float], scale: MetricScale, axis: CurveMetric, confidence: float
) -> list[dict[str, Any]]:
    """Return marks, differences, and verdicts of the curves that meet the level, best first."""
    if len(met) < _FEWEST:
        return [{"verdict": _FIRST[1]} for _ in met]
    gaps = [pareto.gap(met[0], other, scale, axis.direction, seed=SEED, confidence=confidence) for other in met[1:]]
    p_values = {str(at): gap.p_value for at, gap in enumerate(gaps) if gap.p_value is not None}
    adjusted = holm(p_values, family=len(met) * (len(met) - 1) // 2)
    standings: list[dict[str, Any]] = [{"mark": mark_of(0, len(met)), "verdict": _FIRST[0]}]
    for at, gap in enumerate(gaps):
        p_adjusted = adjusted.get(str(at))
        certain = p_adjusted is not None and p_adjusted <= 1.0 - confidence
        verdicts = {
            "worse": _WORSE if certain else "worse as a pair, not after correction",
            "no evidence of a difference": "no evidence of a difference from the best",
        }
        shared = ("change", "change_interval", "difference", "difference_interval")
        verdict = verdicts.get(gap.verdict, gap.verdict)
        if gap.verdict == "worse" and abs(gap.difference) < bounds[0] + bounds[at + 1]:
            verdict = f"{HIDDEN} of the best"
        worse = verdict == verdicts["worse"] and certain
        judged = {"mark": mark_of(at + 1, len(met), worse=worse), "p_adjusted": p_adjusted, "verdict": verdict}
        standings.append({name: getattr(gap, name) for name in shared} | judged)
    if not all(standing["verdict"] == _WORSE for standing in standings[1:]):
        standings[0] = {"mark": None, "verdict": BEST_MEAN}
    return standings


def _notes(curves: Sequence[TradeoffCurve]) -> list[str]:
    sweeping = sorted({curve.sweep for curve in curves if curve.along})
    notes = [f"Curves along {', '.join(sweeping)}."] if sweeping else ["Nothing is swept: there is no curve."]
    if len({curve.case for curve in curves}) == len(curves) > 1:
        notes.append("Exploratory: no two curves were put to the same test.")
    if any(curve.at and curve.at.value is not None and curve.at.interval is None for curve in curves):
        notes.append("No interval where a point has one trial; repetitions: 5 or more gives one.")
    return notes


def _sentences(tradeoff: Tradeoff, across: bool) -> list[str]:
    level = f"At {tradeoff.x.name} {quantity(tradeoff.level, tradeoff.x.unit)}"
    lines = []
    for group in _groups(tradeoff.curves, across):
        curves = [tradeoff.curves[at] for at in group]
        met = [curve for curve in curves if curve.at and curve.at.value is not None]
        best = next((curve for curve in met if curve.at and curve.at.verdict in _FIRST), None)
        if best:
            lines.append(f"{level}, {_lead(tradeoff, best, met)}.")
    for curve in tradeoff.curves:
        at = curve.at
        if not at or at.value is not None:
            continue
        nearest = curve.points[at.nearest]
        has = f"{tradeoff.x.name} {quantity(nearest.x, tradeoff.x.unit)}"
        if at.reach == "short":
            lines.append(f"{curve.name} does not reach {tradeoff.level:g}: {has} at best{curve.where(nearest)}.")
        else:
            worth = f"{tradeoff.y.name} {quantity(nearest.y, tradeoff.y.unit)} with {has}{curve.where(nearest)}"
            lines.append(f"Every point of {curve.name} is better than that: {worth}.")
    return lines


def _lead(tradeoff: Tradeoff, best: TradeoffCurve, met: Sequence[TradeoffCurve]) -> str:
    at = best.at
    assert at
    interval = at.interval and f"{tradeoff.confidence * 100:g}% interval {span(at.interval)}"
    sure = interval or "no interval: one trial a point"
    worth = f"{tradeoff.y.name} {quantity(at.value, tradeoff.y.unit)} ({sure})"
    others = [curve for curve in met if curve is not best]
    if not others:
        return f"{best.name} has {worth}"
    second = min(others, key=lambda curve: abs((curve.at and curve.at.difference) or 0.0))
    extreme = "highest" if tradeoff.y.direction == "higher" else "lowest"
    has = f"{best.name} has the {extreme} {worth}"
    behind = second.at
    assert behind
    if behind.verdict.startswith(HIDDEN):
        return f"{has}; {second.name} is {HIDDEN} of it"
    if behind.verdict.startswith("no evidence"):
        return f"{has}; no evidence of a difference from {second.name}"
    if behind.change_interval is None or behind.change is None:
        return f"{has}; next is {second.name}"
    lead, interval = lead_texts(behind.change, behind.change_interval)
    return f"{has}, {lead} the next, {second.name} ({interval})"
