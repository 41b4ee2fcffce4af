"""Is B worse than A by more than is tolerated, is it not, or can these repetitions not tell?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.student import critical_t

Judgement = Literal["regression", "good", "can't tell"]
POWER_Z = 0.8416
"""Standard deviations for a power of 80%."""
MOST = 10_000


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a gate says about one number. Worse is above zero, whatever the metric's direction."""

    judgement: Judgement
    worse: float | None
    """By how much B is worse, relative to A; below zero it is better."""
    low: float | None
    high: float | None
    visible: float | None
    """The smallest worsening that these repetitions show 4 times in 5."""
    needed: int | None
    """Repetitions a side that would show `mde` 4 times in 5; None where the spread is not known."""


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """How B differs from A in one number, as the repetitions of both show it."""

    relative: float | None
    interval: tuple[float, float] | None
    """Of the relative change; None as from a level of zero."""
    difference: tuple[float, float] | None
    """The interval of the difference, in the unit of the metric."""
    direction: Literal["higher", "lower"]
    """Which way is better."""
    n: int
    """Repetitions of the side that has fewer."""
    certain: bool
    """It holds up after correction for all comparisons."""


def rule(change: MeasuredChange, *, mde: float, confidence: float = 0.95) -> Ruling:
    """Judge a change by its interval.

    Good: the interval excludes a worsening of `mde`. Regression: it excludes none at all, and not that of `mde`.
    Otherwise these repetitions can't tell, and the ruling says how many would. Where there is no relative interval,
    that of the difference says whether it got worse at all.
    """
    relative, interval, direction, n = change.relative, change.interval, change.direction, change.n
    if relative is None or interval is None:
        judgement = _by_difference(change.difference, direction, change.certain)
        return Ruling(judgement, _worse(relative, direction), None, None, None, None)
    low, high = interval if direction == "lower" else (-interval[1], -interval[0])
    worse = relative if direction == "lower" else -relative
    error = _standard_error(interval, n, confidence)
    needed = _needed(error * math.sqrt(n / 2.0), mde, confidence)
    visible = (critical_t(confidence, max(1, 2 * n - 2)) + POWER_Z) * error
    if high < mde:
        return Ruling("good", worse, low, high, visible, needed)
    if low > 0.0 and change.certain:
        return Ruling("regression", worse, low, high, visible, needed)
    return Ruling("can't tell", worse, low, high, visible, max(needed, n + 1))


def _by_difference(ends: tuple[float, float] | None, direction: str, certain: bool) -> Judgement:
    if ends is None:
        return "can't tell"
    low, high = ends if direction == "lower" else (-ends[1], -ends[0])
    if high <= 0.0:
        return "good"
    return "regression" if low > 0.0 and certain else "can't tell"


def _worse(change: float | None, direction: str) -> float | None:
    return None if change is None else change if direction == "lower" else -change


def _standard_error(interval: tuple[float, float], n: int, confidence: float) -> float:
    """Of the log of the ratio, that the interval of the change tells."""
    low, high = (math.log1p(max(end, -0.999_999)) for end in interval)
    return (high - low) / 2.0 / critical_t(confidence, max(1, 2 * n - 2))


def _needed(cv: float, mde: float, confidence: float) -> int:
    """Repetitions a side for a power of 80%, with this spread of a trial."""
    if cv == 0.0:
        return 2
    n = 2
    while n < MOST:
        t = critical_t(confidence, 2 * n - 2)
        if (t + POWER_Z) * cv * math.sqrt(2.0 / n) <= math.log1p(mde):
            return n
        n = max(n + 1, int(n * 1.02))
    return MOST
