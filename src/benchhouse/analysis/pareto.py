"""Two metrics along a sweep: the curve they form, one metric at a given level of the other, and the Pareto frontier.

The curve is a monotone cubic (Fritsch-Carlson) on scales on which such curves are nearly straight;
`docs/design/tradeoff.md` explains how they were chosen. Nothing is extrapolated beyond its ends.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from benchhouse.analysis.compare import CONFIDENCE, Direction, Interval, Verdict, verdict_of
from benchhouse.analysis.contrast import InfluenceEstimate, estimate, interval, p_value
from benchhouse.analysis.student import LARGEST_LOG

Kind = Literal["miss", "log", "linear"]
Reach = Literal["met", "short", "beyond"]


class Vertex(NamedTuple):
    """One point of a sweep: its place, and what its trials measured of both metrics, in the same order."""

    place: float
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class MetricScale:
    """A metric, transformed so that trade-offs become nearly straight."""

    kind: Kind
    floor: float = 0.0  # for kind `miss`: replaces a miss of zero, which has no logarithm

    def label(self, name: str) -> str:
        return {"miss": f"−log(1 − {name})", "log": f"log {name}", "linear": name}[self.kind]

    def bend(self, value: float) -> float:
        if self.kind == "linear":
            return value
        return math.log(value) if self.kind == "log" else -math.log(max(1.0 - value, self.floor))

    def straighten(self, bent: float) -> float:
        if self.kind == "linear":
            return bent
        return math.exp(min(bent, LARGEST_LOG)) if self.kind == "log" else 1.0 - math.exp(-bent)


def scale_of_level(values: Sequence[float], direction: Direction, level: float) -> MetricScale:
    """Return the scale of a metric: a share for which higher is better by its miss, other positive values by their
    logarithm, and the rest unchanged.

    A miss of zero counts as half of the smallest miss of all values: the truth is between that and zero.
    """
    if direction == "higher" and all(0.0 <= value <= 1.0 for value in (*values, level)):
        misses = [1.0 - value for value in (*values, level) if value < 1.0]
        return MetricScale("miss", min(misses, default=1.0) / 2.0)
    return MetricScale("log" if min(*values, level) > 0.0 else "linear")


def scale_of_value(values: Sequence[float]) -> MetricScale:
    return MetricScale("log" if min(values) > 0.0 else "linear")


@dataclass(frozen=True, slots=True)
class Crossing:
    """The value of one metric at which the curve has a given level of the other."""

    reach: Reach  # `met`: within the curve; `short`: no point is as good as the level; `beyond`: all are better
    nearest: int  # index of the knot nearest to the level
    value: float | None = None
    place: float | None = None  # the place of the crossing in the sweep
    interval: Interval | None = None
    method: str = ""
    n: int = 0  # trials of the point with the fewest, among those that the value depends on
    bent: InfluenceEstimate | None = None  # the value on its scale, with the trials behind it


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference between two crossings."""

    difference: float
    change: float | None
    change_interval: Interval | None
    difference_interval: Interval | None
    p_value: float | None
    verdict: Verdict


def cross(
    knots: Sequence[Vertex],
    level: float,
    *,
    x_scale: MetricScale,
    y_scale: MetricScale,
    direction: Direction,
    seed: int,
    confidence: float = CONFIDENCE,
) -> Crossing:
    """Return y where x reaches `level`; `direction` is the way in which x improves.

    Knots may come in any order. Means that go back along the sweep because of noise are pooled with their neighbors.
    """
    order = sorted(range(len(knots)), key=lambda at: knots[at].place)
    ordered = [knots[at] for at in order]
    means, places, weights = _columns(ordered)
    better = -1.0 if direction == "lower" else 1.0
    nearest = min(range(len(order)), key=lambda at: abs(means[2 * at] - level))
    curve = _curve(means, places, weights, x_scale, y_scale)
    target = x_scale.bend(level)
    if not curve.us[0] <= target <= curve.us[-1]:
        short = (target > curve.us[-1]) == (better > 0.0)
        return Crossing("short" if short else "beyond", order[nearest])

    def height(moved: Sequence[float]) -> float:
        return _curve(moved, places, weights, x_scale, y_scale).height(target, better)

    bent = estimate(height, [(knot.x, knot.y) for knot in ordered])
    ends, method = interval(bent, confidence=confidence, seed=seed)
    if ends:
        ends = Interval(*(y_scale.straighten(end) for end in ends))
    place = curve.place(target, better)
    return Crossing("met", order[nearest], y_scale.straighten(bent.value), place, ends, method, bent.n, bent)


def gap(
    a: Crossing, b: Crossing, scale: MetricScale, direction: Direction, *, seed: int, confidence: float = CONFIDENCE
) -> Gap:
    """Compare B with A, both `met` and on the same scale. One interval decides: that of the change if y is on
    logarithms, otherwise that of the difference.
    """
    assert a.bent and b.bent and a.value is not None and b.value is not None
    apart = b.bent.minus(a.bent)
    ends, _ = interval(apart, confidence=confidence, seed=seed)
    relative = scale.kind == "log"
    return Gap(
        difference=b.value - a.value,
        change=(b.value - a.value) / abs(a.value) if a.value else None,
        change_interval=Interval(*(math.expm1(min(end, LARGEST_LOG)) for end in ends)) if ends and relative else None,
        difference_interval=ends if not relative else None,
        p_value=p_value(apart),
        verdict=verdict_of(a.value, b.value, ends, direction),
    )


def drawn(
    knots: Sequence[Vertex], x_scale: MetricScale, y_scale: MetricScale, steps: int = 12
) -> list[tuple[float, float]]:
    """Return the curve as points from end to end, with `steps` of them between two knots that are apart."""
    means, places, weights = _columns(sorted(knots, key=lambda knot: knot.place))
    curve = _curve(means, places, weights, x_scale, y_scale)
    us = [a + (b - a) * step / steps for a, b in pairwise(curve.us) if b > a for step in range(steps)]
    return [(x_scale.straighten(u), y_scale.straighten(curve.height(u, 1.0))) for u in [*us, curve.us[-1]]]


def frontier(
    points: Sequence[tuple[float, float]],
    directions: tuple[Direction, Direction],
    bounds: Sequence[tuple[float, float]] = (),
) -> list[int]:
    """Return the indexes of points that no other point dominates (as good on both metrics and better on one), in order;
    equal points are both kept.

    `bounds` are the error bounds of each point's numbers: a point is dominated only by at least the sum of both points'
    bounds.
    """
    signs = [-1.0 if direction == "lower" else 1.0 for direction in directions]
    worth = [(signs[0] * x, signs[1] * y) for x, y in points]
    kept, best = [], (-math.inf, -math.inf)
    for at in sorted(range(len(points)), key=lambda at: worth[at], reverse=True):
        if worth[at][1] > best[1] or worth[at] == best:
            kept.append(at)
            best = worth[at]
    if any(map(any, bounds)):
        beaten = set(range(len(points))).difference(kept)
        kept += [at for at in beaten if not any(_beats(worth, bounds, other, at) for other in range(len(points)))]
    return sorted(kept)


def _beats(worth: Sequence[tuple[float, float]], bounds: Sequence[tuple[float, float]], a: int, b: int) -> bool:
    gains = [of_a - of_b for of_a, of_b in zip(worth[a], worth[b], strict=True)]
    apart = [of_a + of_b for of_a, of_b in zip(bounds[a], bounds[b], strict=True)]
    return any(gain > 0.0 for gain in gains) and all(gain >= off for gain, off in zip(gains, apart, strict=True))


def _columns(ordered: Sequence[Vertex]) -> tuple[list[float], list[float], list[float]]:
    """Return the means of x and y of each knot in turn, the places, and the number of trials of each."""
    means = [mean for knot in ordered for mean in (fmean(knot.x), fmean(knot.y))]
    return means, [knot.place for knot in ordered], [float(len(knot.x)) for knot in ordered]


@dataclass(frozen=True, slots=True)
class _Curve:
    """Knots on transformed scales, us ascending; equal ones may be adjacent."""

    us: list[float]
    vs: list[float]
    places: list[float]

    def height(self, u: float, better: float) -> float:
        return self._at(u, self.vs, better)

    def place(self, u: float, better: float) -> float:
        return self._at(u, self.places, better)

    def _at(self, u: float, values: list[float], better: float) -> float:
        """Interpolate at `u`. Of knots with the same u below or above it, use the nearest; at `u` itself, the first
        that is good enough.
        """
        kept: dict[float, float] = {}
        for at, value in zip(self.us, values, strict=True):
            if at < u or (at == u and better < 0.0) or at not in kept:
                kept[at] = value
        return _cubic(list(kept), list(kept.values()), u)


def _curve(
    means: Sequence[float],
    places: Sequence[float],
    weights: Sequence[float],
    x_scale: MetricScale,
    y_scale: MetricScale,
) -> _Curve:
    """Return the curve; `means` has x and y of each knot in turn, along the sweep."""
    us, vs = [x_scale.bend(x) for x in means[::2]], [y_scale.bend(y) for y in means[1::2]]
    rows = [list(row) for row in zip(us, vs, places, weights, strict=True)]
    middle = (len(us) - 1) / 2.0
    if sum((at - middle) * u for at, u in enumerate(us)) < 0.0:  # x falls along the sweep, overall
        rows.reverse()
    pooled: list[list[float]] = []
    for row in rows:
        pooled.append(row)
        while len(pooled) > 1 and pooled[-1][0] < pooled[-2][0]:  # adjacent violators are merged
            *late, heavy = pooled.pop()
            *early, light = pooled.pop()
            merged = [(a * light + b * heavy) / (light + heavy) for a, b in zip(early, late, strict=True)]
            pooled.append([*merged, light + heavy])
    return _Curve([row[0] for row in pooled], [row[1] for row in pooled], [row[2] for row in pooled])


def _cubic(us: Sequence[float], vs: Sequence[float], u: float) -> float:
    """Return the Fritsch-Carlson monotone cubic through knots with ascending us, at `u` within them."""
    if len(us) == 1:
        return vs[0]
    right = min(max(bisect_left(us, u), 1), len(us) - 1)
    widths = [b - a for a, b in pairwise(us)]
    slopes = [(b - a) / width for (a, b), width in zip(pairwise(vs), widths, strict=True)]
    left_slope, right_slope = _tangent(widths, slopes, right - 1), _tangent(widths, slopes, right)
    width = widths[right - 1]
    t = (u - us[right - 1]) / width
    a, b = vs[right - 1], vs[right]
    rise = t * t * (3.0 - 2.0 * t)
    return a + (b - a) * rise + width * t * (1.0 - t) * ((1.0 - t) * left_slope - t * right_slope)


def _tangent(widths: Sequence[float], slopes: Sequence[float], at: int) -> float:
    if len(slopes) == 1:
        return slopes[0]
    if at in (0, len(slopes)):
        near, far = (0, 1) if at == 0 else (-1, -2)
        return _end_tangent(widths[near], widths[far], slopes[near], slopes[far])
    before, after = slopes[at - 1], slopes[at]
    if before * after <= 0.0:
        return 0.0
    early, late = 2.0 * widths[at] + widths[at - 1], widths[at] + 2.0 * widths[at - 1]
    return (early + late) / (early / before + late / after)


def _end_tangent(near: float, far: float, slope: float, next_slope: float) -> float:
    """Return the slope of a parabola through three knots, limited so that the curve stays monotone."""
    tangent = ((2.0 * near + far) * slope - near * next_slope) / (near + far)
    if tangent * slope <= 0.0:
        return 0.0
    return 3.0 * slope if slope * next_slope <= 0.0 and abs(tangent) > 3.0 * abs(slope) else tangent
