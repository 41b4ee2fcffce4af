"""Is B worse than A by more than is tolerated, or a number beyond a limit; or can these repetitions not tell?"""

import math
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.student import critical_t

Judgement = Literal["regression", "good", "can't tell"]
Standing = Literal["beyond", "within", "unsure"]
POWER_Z = 0.8416  # standard deviations for a power of 80%
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a gate says about one number. Worse is above zero, whatever the metric's direction."""

    judgement: Judgement
    worse: float | None  # by how much B is worse, relative to A; below zero it is better
    low: float | None
    high: float | None
    visible: float | None  # the smallest worsening that these repetitions show 4 times in 5
    needed: int | None  # repetitions a side that would show `mde` 4 times in 5; None where the spread is not known


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """How B differs from A in one number, as the repetitions of both show it."""

    relative: float | None
    interval: tuple[float, float] | None  # of the relative change; None as from a level of zero
    difference: tuple[float, float] | None  # the interval of the difference, in the unit of the metric
    direction: Literal["higher", "lower"]  # which way is better
    n: int  # repetitions of the side that has fewer
    certain: bool  # it holds up after correction for all comparisons


def rule(change: MeasuredChange, *, mde: float, confidence: float = 0.95) -> Ruling:
    """Judge a change by its interval.

    Good: the interval excludes a worsening of `mde`. Regression: it excludes none at all, and not that of `mde`.
    Otherwise these repetitions can't tell, and the ruling says how many would. Where there is no relative interval,
    that of the difference says whether it got worse at all.
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
    """An interval so that worse is above zero."""
    return ends if direction == "lower" else (-ends[1], -ends[0])


def _needed(cv: float, mde: float, confidence: float) -> int:
    """Repetitions a side for a power of 80%, with this spread of a trial."""
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
    """Beyond is where the whole interval is; a single value decides alone. A mean beyond it may still be noise."""
    low, high = interval or (mean, mean)
    if side == "below":
        mean, low, high, limit = -mean, -high, -low, -limit
    if low > limit:
        return "beyond"
    return "within" if mean <= limit else "unsure"
