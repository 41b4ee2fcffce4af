"""Decide if B is worse than A by more than is tolerated, or a number beyond a limit, or if there are too few
repetitions.
"""

import math
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.student import critical_t

Judgement = Literal["regression", "good", "can't tell"]
Standing = Literal["beyond", "within", "unsure"]
POWER_Z = 0.8416  # standard normal quantile for a power of 80%
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """The judgement of a gate about one number. Positive is worse, whatever the metric's direction."""

    judgement: Judgement
    worse: float | None  # by how much B is worse, relative to A; negative is better
    low: float | None
    high: float | None
    visible: float | None  # the smallest worsening that these repetitions detect 4 times in 5
    needed: int | None  # repetitions per side that would detect `mde` 4 times in 5; None if the spread is unknown


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """How B differs from A in one number, based on the repetitions of both."""

    relative: float | None
    interval: tuple[float, float] | None  # of the relative change; None if the level of A is zero
    difference: tuple[float, float] | None  # the interval of the difference, in the unit of the metric
    direction: Literal["higher", "lower"]  # which way is better
    n: int  # repetitions of the side with fewer
    certain: bool  # the change holds up after correction for all comparisons


def rule(change: MeasuredChange, *, mde: float, confidence: float = 0.95) -> Ruling:
    """Judge a change by its interval.

    Good: the interval excludes a worsening of `mde`. Regression: it excludes zero but not `mde`, and the change is
    certain. Otherwise these repetitions can't tell, and the ruling has the number that would. Without a relative
    interval, that of the difference decides whether it got worse at all.
    """
    relative, interval, n = change.relative, change.interval, change.n
    worse = relative if relative is None or change.direction == "lower" else -relative
    if relative is None or interval is None:
        return Ruling(_by_difference(change), worse, None, None, None, None)
    low, high = _turned(interval, change.direction)
    t = critical_t(confidence, max(1, 2 * n - 2))
    lowest, highest = (math.log1p(max(end, -0.999_999)) for end in interval)
    error = (highest - lowest) / 2.0 / t  # standard error of the log of the ratio
    needed = _needed(error * math.sqrt(n / 2.0), mde, confidence)
    visible = (t + POWER_Z) * error
    if high < mde:
        return Ruling("good", worse, low, high, visible, needed)
    if low > 0.0 and change.certain:
        return Ruling("regression", worse, low, high, visible, needed)
    return Ruling("can't tell", worse, low, high, visible, max(needed, n + 1))


def _by_difference(change: MeasuredChange) -> Judgement:
    if change.difference is None:
        return "can't tell"
    low, high = _turned(change.difference, change.direction)
    if high <= 0.0:
        return "good"
    return "regression" if low > 0.0 and change.certain else "can't tell"


def _turned(ends: tuple[float, float], direction: str) -> tuple[float, float]:
    """Return the interval oriented so that positive is worse."""
    return ends if direction == "lower" else (-ends[1], -ends[0])


def _needed(cv: float, mde: float, confidence: float) -> int:
    """Return the repetitions per side for a power of 80%, given the relative spread of a trial."""
    n = 2
    while n < MOST:
        t = critical_t(confidence, 2 * n - 2)
        if (t + POWER_Z) * cv * math.sqrt(2.0 / n) <= math.log1p(mde):
            return n
        n = max(n + 1, int(n * 1.02))
    return MOST


def stands(
    mean: float, interval: tuple[float, float] | None, limit: float, side: Literal["above", "below"]
) -> Standing:
    """Return "beyond" if the whole interval is beyond the limit. If only the mean is, it may be noise: "unsure". A
    single value decides alone.
    """
    low, high = interval or (mean, mean)
    if side == "below":
        mean, low, high, limit = -mean, -high, -low, -limit
    if low > limit:
        return "beyond"
    return "within" if mean <= limit else "unsure"
