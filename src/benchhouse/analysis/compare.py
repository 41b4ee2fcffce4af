"""Compare two samples of replicates: a difference, a relative change, an interval for each, and a verdict in words.

One value is one trial. Requests inside a trial share its warm-up, placement, and noise, so comparing them would claim
an independence that does not exist. `docs/design/statistics.md` explains how the intervals were chosen.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from benchhouse.analysis.interval_checks import doubt
from benchhouse.analysis.memory import worth
from benchhouse.analysis.student import LARGEST_LOG, P_METHOD, critical_t, two_sided_p, welch_df
from benchhouse.analysis.summary import finite, mean, variance

if TYPE_CHECKING:
    from benchhouse.analysis.bootstrap import Critical, Criticals

Direction = Literal["higher", "lower"] | None
HIDDEN: Final = "within error bounds"
Verdict = Literal[
    "better", "worse", "different", "no evidence of a difference", "too few repetitions", "within error bounds"
]

CONFIDENCE = 0.95
RESAMPLES = 1999
"""(RESAMPLES + 1) * 2.5% is a whole number, so the tails are order statistics: the 50th from either end."""
SMALLEST_RESAMPLED = 5
SMALLEST_EXACT = 3  # with a coarse clock, two equal values may be chance; three on each side hardly are
LARGEST_RESAMPLED = 200
"""Above this size, both intervals differ in width by less than 2%, and resampling costs memory."""
CAP = 2.0  # critical values are limited to this multiple of Welch's: otherwise one outlier in five makes them absurd
DEFINITION = 3
"""Version of the intervals, recorded in every claim. Version 1 had no HEAVY_TAILED; 2 chose the scale by
LARGEST_RELATIVE_ERROR. Increase it when an interval changes, and keep the earlier definitions: a claim is recomputed
with its own.
"""
HEAVY_TAILED = 8
"""From this many values per side on, an end closer than Welch's moves halfway toward it: with heavy tails, resampling
alone covers 92.5%, Welch's interval alone 97%.
"""
LARGEST_RELATIVE_ERROR = 0.3
"""Used in definitions 1 and 2: a relative change is computed only if both means are known this precisely. That selected
samples that look tame by chance, whose intervals are too narrow.
"""
LARGEST_RELATIVE_VARIANCE = 0.75**2
"""Relative variance of a mean, which cannot exceed one. Above this limit, a single value makes up the mean, and nothing
else is known.
"""

_ROUNDING = 1e-12
_NEARLY_ALL = -36.0  # smaller exponents are lost next to one: a total loss, which no positive value is


class Interval(NamedTuple):
    lo: float
    hi: float

    def covers(self, value: float) -> bool:
        return self.lo <= value <= self.hi


class Pair(NamedTuple):
    """Two samples to compare; `direction` is the way in which the metric improves (None: neither).

    `memory` is that of the noise (`analysis.memory`), for comparisons in which one side ran after the other.
    """

    a: Sequence[float]
    b: Sequence[float]
    direction: Direction = None
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class StatisticComparison:
    """Sample B compared with sample A. Intervals are None if there are too few repetitions."""

    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    difference: float  # mean_b - mean_a, in the unit of the metric
    difference_interval: Interval | None
    change: float | None  # difference / |mean_a|, a fraction; None when mean_a is zero
    change_interval: Interval | None
    """Also None unless all values are positive: otherwise a ratio has no interval."""
    confidence: float
    method: str
    hedges_g: float | None
    cliffs_delta: float
    p_value: float | None
    """Computed by `p_method`, for correction. The verdict uses the interval that is shown: that of the change if it
    exists, otherwise that of the difference; at its edge, verdict and p-value may disagree.
    """
    p_method: str
    direction: Direction
    verdict: Verdict
    doubt: str = ""  # why the interval is only a spread, if a sample shows that

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """Return the result as one line of plain text, with the given names for the two sides."""
        return f"{b} {self._change_text(a)} ({self._certainty_text()}): {self.verdict}"

    def _change_text(self, a: str) -> str:
        if self.difference == 0.0:
            return f"equals {a}"
        size = f"{abs(self.difference):.4g}" if self._absolute else _percent(abs(self.change or 0.0))
        return f"is {size} {'higher' if self.difference > 0.0 else 'lower'}"

    def _certainty_text(self) -> str:
        repetitions = f"n={self.n_a} and {self.n_b}"
        interval = self.difference_interval if self._absolute else self.change_interval
        if interval is None:
            return f"{repetitions}, no interval"
        if interval.lo == interval.hi:
            return f"{self.method}, {repetitions}"
        lo, hi = (f"{end:+.4g}" if self._absolute else _percent(end, "+") for end in interval)
        doubted = f"; {self.doubt}" if self.doubt else ""
        return f"{self.confidence * 100:g}% interval {lo} to {hi}, {repetitions}{doubted}"

    @property
    def _absolute(self) -> bool:
        """Whether to use the metric's unit: there is no change, or only the difference has an interval."""
        return self.change is None or (self.change_interval is None and self.difference_interval is not None)


def compare(
    a: Sequence[float],
    b: Sequence[float],
    *,
    direction: Direction,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    definition: int = DEFINITION,
) -> StatisticComparison:
    """Compare replicates of B with replicates of A. Raise ValueError for an empty side, NaN, or infinity."""
    pairs = [Pair(a, b, direction)]
    return compare_many(pairs, seed=seed, confidence=confidence, resamples=resamples, definition=definition)[0]


def compare_many(
    pairs: Sequence[Pair],
    *,
    seed: int,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    definition: int = DEFINITION,
) -> list[StatisticComparison]:
    """Return `compare` for each pair, in order, with the same results and far less work: resamples are shared."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"a confidence lies between 0 and 1, found {confidence}")
    if (resamples + 1) * (1.0 - confidence) / 2.0 < 1.0 - 1e-9:
        raise ValueError(f"{resamples} resamples are too few for a {confidence * 100:g}% interval")
    samples = [(_Sample.of(pair.a, pair.memory), _Sample.of(pair.b, pair.memory)) for pair in pairs]
    # Each pair is computed with the smaller side first and reversed afterwards, so that swapping the two sides of a
    # comparison only flips its signs (samples are sorted, so the order of trials does not matter).
    turned = [(b, a) if b.values_key < a.values_key else (a, b) for a, b in samples]
    how = _How(confidence, resamples, definition)
    criticals = _bootstrap(turned, how, seed)
    results = []
    for pair, sides, (a, b), critical in zip(pairs, samples, turned, criticals, strict=True):
        bounds = _bounds(a, b, critical, how)
        if sides[0] is not a:
            bounds = bounds.reversed()
        results.append(_comparison(*sides, bounds, pair.direction, how))
    return results


class _How(NamedTuple):
    confidence: float
    resamples: int
    definition: int


@dataclass(frozen=True, slots=True)
class _Sample:
    values: list[float]
    mean: float
    memory: float
    var_of_mean: float
    df: float  # degrees of freedom of that variance

    @classmethod
    def of(cls, values: Sequence[float], memory: float = 0.0) -> "_Sample":
        ordered = sorted(finite(values))
        if not ordered:
            raise ValueError("a comparison needs at least one value on each side, found none")
        centre = mean(ordered)
        n = len(ordered)
        if n < 2:
            return cls(ordered, centre, memory, 0.0, 0.0)
        known = worth(n, memory)
        return cls(ordered, centre, memory, variance(ordered, centre) / n * known.inflation, known.df)

    def log_var(self, definition: int) -> float:
        """Return the variance of the log of the mean. If a single value makes up the mean, it is as wide as the
        logarithms allow.

        The mean of positive values is at least the exponential of the mean of their logarithms, which huge values
        hardly affect.
        """
        relative = self.var_of_mean / self.mean / self.mean
        if relative <= LARGEST_RELATIVE_VARIANCE or definition < 3:
            return relative
        below = math.log(self.mean) - mean([math.log(value) for value in self.values])
        return max(relative, (below + math.sqrt(self.var_of_logs)) ** 2)

    @property
    def var_of_logs(self) -> float:
        """Variance of the mean of the logarithms, the minimum for p-values of samples that can be resampled. With less,
        skewed values would pass too often in the far tail, which a correction for many pairs uses.
        """
        logs = [math.log(value) for value in self.values]
        return variance(logs, mean(logs)) / len(logs) * worth(len(logs), self.memory).inflation

    @property
    def values_key(self) -> tuple[int, list[float]]:
        return len(self.values), self.values


class _Bounds(NamedTuple):
    """Intervals of the difference and of the log of the ratio."""

    difference: Interval | None
    log_ratio: Interval | None
    method: str

    def reversed(self) -> "_Bounds":
        flipped = [Interval(-side.hi, -side.lo) if side else None for side in (self.difference, self.log_ratio)]
        return _Bounds(flipped[0], flipped[1], self.method)


def _bootstrap(pairs: list[tuple[_Sample, _Sample]], how: _How, seed: int) -> "list[Criticals | None]":
    """Return bootstrap-t critical values for pairs whose size, spread, and noise allow it, and None for the others."""
    batches: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for place, (a, b) in enumerate(pairs):
        sizes = len(a.values), len(b.values)
        allowed = min(sizes) >= SMALLEST_RESAMPLED and max(sizes) <= LARGEST_RESAMPLED and not a.memory
        if allowed and a.var_of_mean + b.var_of_mean > 0.0:
            batches[(*sizes, _relative(a, b, how.definition))].append(place)
    criticals: list[Criticals | None] = [None] * len(pairs)
    if batches:  # numpy is needed only then
        from benchhouse.analysis.bootstrap import resample
    for (_, _, positive), places in batches.items():
        values = [(pairs[place][0].values, pairs[place][1].values) for place in places]
        answers = resample(values, positive=positive, confidence=how.confidence, resamples=how.resamples, seed=seed)
        for place, answer in zip(places, answers, strict=True):
            criticals[place] = answer
    return criticals


def _bounds(a: _Sample, b: _Sample, criticals: "Criticals | None", how: _How) -> _Bounds:
    difference = b.mean - a.mean
    relative = _relative(a, b, how.definition)
    log_ratio = math.log(b.mean) - math.log(a.mean) if relative else 0.0
    n_a, n_b = len(a.values), len(b.values)
    if min(n_a, n_b) < 2:
        return _Bounds(None, None, "none, too few repetitions")
    if a.var_of_mean + b.var_of_mean == 0.0:
        if min(n_a, n_b) < SMALLEST_EXACT and difference:
            return _Bounds(None, None, "none, too few equal values to call them exact")
        point = Interval(log_ratio, log_ratio) if relative else None
        return _Bounds(Interval(difference, difference), point, "exact values, no spread")

    def interval(estimate: float, var_a: float, var_b: float, critical: "Critical | None") -> Interval:
        t = critical_t(how.confidence, welch_df(var_a, var_b, a.df + 1.0, b.df + 1.0))
        lo, hi = (max(critical.lo, -CAP * t), min(critical.hi, CAP * t)) if critical else (-t, t)
        if min(n_a, n_b) >= HEAVY_TAILED and how.definition > 1:
            lo, hi = min(lo, (lo - t) / 2.0), max(hi, (hi + t) / 2.0)
        error = math.sqrt(var_a + var_b)
        return Interval(estimate - hi * error, estimate - lo * error)

    method = f"bootstrap-t, {how.resamples} resamples"
    if a.memory:
        method = f"Welch t, widened for noise that remembers ({a.memory:.2f})"
    elif not criticals:
        method = f"Welch t, n too {'small' if min(n_a, n_b) < SMALLEST_RESAMPLED else 'large'} to resample"
    absolute = interval(difference, a.var_of_mean, b.var_of_mean, criticals.difference if criticals else None)
    if not relative:
        return _Bounds(absolute, None, method)
    var_a, var_b = (side.log_var(how.definition) for side in (a, b))
    return _Bounds(absolute, interval(log_ratio, var_a, var_b, criticals.log_ratio if criticals else None), method)


def _comparison(a: _Sample, b: _Sample, bounds: _Bounds, direction: Direction, how: _How) -> StatisticComparison:
    difference = b.mean - a.mean
    change = difference / abs(a.mean) if a.mean else None
    return StatisticComparison(
        n_a=len(a.values),
        n_b=len(b.values),
        mean_a=a.mean,
        mean_b=b.mean,
        difference=difference,
        difference_interval=bounds.difference,
        change=change,
        change_interval=_change_interval(change, bounds.log_ratio),
        confidence=how.confidence,
        method=bounds.method,
        hedges_g=hedges_g(a.values, b.values),
        cliffs_delta=cliffs_delta(a.values, b.values),
        p_value=_p_value(a, b, how.definition),
        p_method=P_METHOD,
        direction=direction,
        verdict=verdict_of(a.mean, b.mean, bounds.log_ratio or bounds.difference, direction),
        doubt=(doubt(a.values) or doubt(b.values)) if how.definition > 2 else "",
    )


def hide_within(compared: StatisticComparison, bound_a: float | None, bound_b: float | None) -> StatisticComparison:
    """Replace the verdict if the difference is smaller than the sum of both error bounds (None: unknown)."""
    bound = (bound_a or 0.0) + (bound_b or 0.0)
    if compared.verdict in ("better", "worse", "different") and abs(compared.difference) < bound:
        return replace(compared, verdict=HIDDEN)
    return compared


def p_value(a: Sequence[float], b: Sequence[float], definition: int = DEFINITION) -> float | None:
    """Return the p-value of Welch's t test on the scale of `compare`; None if a side has fewer than two values."""
    return _p_value(_Sample.of(a), _Sample.of(b), definition)


def _p_value(a: _Sample, b: _Sample, definition: int) -> float | None:
    if min(len(a.values), len(b.values)) < 2:
        return None
    if a.var_of_mean + b.var_of_mean == 0.0:
        return 1.0 if a.mean == b.mean else 0.0
    difference, var_a, var_b = b.mean - a.mean, a.var_of_mean, b.var_of_mean
    if _relative(a, b, definition):  # on the scale of the deciding interval
        difference = math.log(b.mean) - math.log(a.mean)
        var_a, var_b = (side.log_var(definition) for side in (a, b))
        if definition > 2 and min(len(a.values), len(b.values)) >= SMALLEST_RESAMPLED:
            var_a, var_b = max(var_a, a.var_of_logs), max(var_b, b.var_of_logs)
    return two_sided_p(difference / math.sqrt(var_a + var_b), welch_df(var_a, var_b, a.df + 1.0, b.df + 1.0))


def _change_interval(change: float | None, log_ratio: Interval | None) -> Interval | None:
    if change is None or log_ratio is None:
        return None
    if log_ratio.lo == log_ratio.hi:
        return Interval(change, change)
    return Interval(math.expm1(max(log_ratio.lo, _NEARLY_ALL)), math.expm1(min(log_ratio.hi, LARGEST_LOG)))


def verdict_of(mean_a: float, mean_b: float, interval: Interval | None, direction: Direction) -> Verdict:
    """Return the verdict in words, based only on the interval of the difference (or of the log of the ratio)."""
    if interval is None:
        return "too few repetitions"
    # Means that differ only by rounding come from the same numbers added up in another order.
    if interval.covers(0.0) or math.isclose(mean_a, mean_b, rel_tol=_ROUNDING):
        return "no evidence of a difference"
    if direction is None:
        return "different"
    return "better" if (mean_b > mean_a) == (direction == "higher") else "worse"


def _relative(a: _Sample, b: _Sample, definition: int) -> bool:
    """Whether the ratio decides: all values are positive, which is a property of the metric and not of the sample."""
    known = all(side.var_of_mean <= (LARGEST_RELATIVE_ERROR * side.mean) ** 2 for side in (a, b))
    return min(a.values[0], b.values[0]) > 0.0 and (known or definition > 2)


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return mean of b minus mean of a in pooled standard deviations, corrected for small n.

    None means undefined: fewer than two values on a side, or different constants without any spread.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    a, b = sorted(a), sorted(b)
    mean_a, mean_b = mean(a), mean(b)
    df = len(a) + len(b) - 2
    pooled = math.sqrt(((len(a) - 1) * variance(a, mean_a) + (len(b) - 1) * variance(b, mean_b)) / df)
    if pooled == 0.0:
        return 0.0 if mean_a == mean_b else None
    return (mean_b - mean_a) / pooled * (1.0 - 3.0 / (4.0 * df - 1.0))


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float:
    """Return P(b > a) - P(b < a) over all pairs: -1 or 1 if the samples do not overlap, 0 if neither leads."""
    ordered = sorted(a)
    wins = sum(bisect_left(ordered, value) - (len(ordered) - bisect_right(ordered, value)) for value in b)
    return wins / (len(a) * len(b))


def _percent(fraction: float, sign: Literal["", "+"] = "") -> str:
    percent = fraction * 100.0
    digits = ".1f" if abs(percent) >= 0.1 or percent == 0.0 else ".2g"
    return f"{percent:{sign}{digits}}%"
