"""Uncertainty of a number that is computed from the means of several groups of trials.

The number is a smooth function of the means, so near them it is a sum: each trial contributes a small amount, its
influence. Groups of influences then take the role of the samples of values in `compare`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchhouse.analysis.compare import CAP, LARGEST_RESAMPLED, RESAMPLES, SMALLEST_EXACT, SMALLEST_RESAMPLED, Interval
from benchhouse.analysis.student import critical_t, two_sided_p

_STEP = 1e-5  # relative to a mean, for a derivative: far above rounding, far below any curvature

Influences = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class InfluenceEstimate:
    """A number and the trials behind it: one tuple of influences for each group that it depends on."""

    value: float
    groups: tuple[Influences, ...]

    def minus(self, other: "InfluenceEstimate") -> "InfluenceEstimate":
        """Return the difference from a number that is based on other trials."""
        turned = tuple(tuple(-influence for influence in group) for group in other.groups)
        return InfluenceEstimate(self.value - other.value, self.groups + turned)

    @property
    def n(self) -> int:
        """Trials in the smallest group."""
        return min((len(group) for group in self.groups), default=0)

    @property
    def df(self) -> float:
        """Welch-Satterthwaite degrees of freedom; requires some spread."""
        parts = [(_var_of_mean(group), len(group) - 1) for group in self.groups]
        return sum(var for var, _ in parts) ** 2 / sum(var**2 / df for var, df in parts if var > 0.0)

    @property
    def error(self) -> float:
        """Standard error; requires at least two trials in every group."""
        return math.sqrt(sum(_var_of_mean(group) for group in self.groups))


def estimate(
    function: Callable[[Sequence[float]], float], samples: Sequence[Sequence[Sequence[float]]]
) -> InfluenceEstimate:
    """Return `function` of the means of all columns, with the influence of each trial.

    A sample is one group of trials: one column for each quantity that they measured, all of the same length. A group
    that does not affect the function is left out. Derivatives are central differences.
    """
    means = [math.fsum(column) / len(column) for sample in samples for column in sample]
    at = 0
    groups: list[Influences] = []
    for sample in samples:
        influences = [0.0] * len(sample[0])
        matters = False
        for column in sample:
            slope = _slope(function, means, at)
            matters = matters or slope != 0.0
            influences = [old + slope * (value - means[at]) for old, value in zip(influences, column, strict=True)]
            at += 1
        if matters:
            groups.append(tuple(influences))
    return InfluenceEstimate(function(means), tuple(groups))


def _slope(function: Callable[[Sequence[float]], float], means: Sequence[float], at: int) -> float:
    step = _STEP * (abs(means[at]) or 1.0)
    ends = []
    for sign in (1.0, -1.0):
        moved = list(means)
        moved[at] += sign * step
        ends.append(function(moved))
    return (ends[0] - ends[1]) / (2.0 * step)


def interval(number: InfluenceEstimate, *, confidence: float, seed: int) -> tuple[Interval | None, str]:
    """Return the interval and its method: bootstrap-t over trials if every group has at least five, otherwise Welch's
    t.

    The interval is None if a group has one trial, or if there are only two equal ones.
    """
    if number.n < 2:
        return None, "none, too few repetitions"
    if number.error == 0.0:
        if number.n < SMALLEST_EXACT:
            return None, "none, too few equal values to call them exact"
        return Interval(number.value, number.value), "exact values, no spread"
    t = critical_t(confidence, number.df)
    low, high, method = -t, t, "Welch t"
    largest = max(len(group) for group in number.groups)
    if number.n >= SMALLEST_RESAMPLED and largest <= LARGEST_RESAMPLED:
        from benchhouse.analysis.bootstrap import resample_sum  # needs numpy

        low, high = resample_sum(number.groups, confidence, RESAMPLES, seed)
        low, high, method = max(low, -CAP * t), min(high, CAP * t), f"bootstrap-t, {RESAMPLES} resamples"
    return Interval(number.value - high * number.error, number.value - low * number.error), method


def p_value(number: InfluenceEstimate) -> float | None:
    """Return the p-value for the hypothesis of zero, by Welch's t; None if a group has one trial."""
    if number.n < 2:
        return None
    if number.error == 0.0:
        return 1.0 if number.value == 0.0 else 0.0
    return two_sided_p(number.value / number.error, number.df)


def _var_of_mean(group: Influences) -> float:
    n = len(group)
    return math.fsum(value * value for value in group) / n / (n - 1) if n > 1 else 0.0
