"""How sure is a number that was worked out of the means of several groups of trials?

The number is a smooth function of the means, so near them it is a sum: each trial moves it by its own small amount,
its influence. Groups of influences then play the part that samples of values play in `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchhouse.analysis.compare import CAP, LARGEST_RESAMPLED, RESAMPLES, SMALLEST_EXACT, SMALLEST_RESAMPLED, Interval
from benchhouse.analysis.student import critical_t, two_sided_p

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_STEP = 1e-5  # of a mean, for a derivative: far above rounding, far below any bend

Influences = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the trials behind it: one tuple of influences for each group that it depends on."""

    value: float
    groups: tuple[Influences, ...]

    def minus(self, other: Estimate) -> Estimate:
        """The difference from a number that other trials stand behind."""
        turned = tuple(tuple(-influence for influence in group) for group in other.groups)
        return Estimate(self.value - other.value, self.groups + turned)

    @property
    def n(self) -> int:
        """Trials in the smallest group."""
        return min((len(group) for group in self.groups), default=0)

    @property
    def df(self) -> float:
        """Welch and Satterthwaite's degrees of freedom; needs some spread."""
        parts = [(_var_of_mean(group), len(group) - 1) for group in self.groups]
        return sum(var for var, _ in parts) ** 2 / sum(var**2 / df for var, df in parts if var > 0.0)

    @property
    def error(self) -> float:
        """Standard error; needs two trials or more in every group."""
        return math.sqrt(sum(_var_of_mean(group) for group in self.groups))


def estimate(function: Callable[[Sequence[float]], float], samples: Sequence[Sequence[Sequence[float]]]) -> Estimate:
    """`function` of the means of all columns, and what each trial adds to it.

    A sample is one group of trials: one column for each quantity that they measured, all of the same length. A group
    of which the function takes no notice is left out. Derivatives are central differences.
    """
    means = [math.fsum(column) / len(column) for sample in samples for column in sample]
    value, at = function(means), 0
    groups: list[Influences] = []
    for sample in samples:
        influences = [0.0] * len(sample[0])
        matters = False
        for column in sample:
            slope = _slope(function, means, at)
            matters = matters or slope != 0.0
            influences = [old + slope * (one - means[at]) for old, one in zip(influences, column, strict=True)]
            at += 1
        if matters:
            groups.append(tuple(influences))
    return Estimate(value, tuple(groups))


def _slope(function: Callable[[Sequence[float]], float], means: Sequence[float], at: int) -> float:
    step = _STEP * (abs(means[at]) or 1.0)
    ends = []
    for sign in (1.0, -1.0):
        moved = list(means)
        moved[at] += sign * step
        ends.append(function(moved))
    return (ends[0] - ends[1]) / (2.0 * step)


def interval(
    found: Estimate, *, confidence: float, seed: int, resamples: int = RESAMPLES
) -> tuple[Interval | None, str]:
    """The interval and how it was made: bootstrap-t over trials from five in every group on, Welch's t below.

    None where a group has one trial, and where two equal ones are all there is.
    """
    if found.n < 2:
        return None, "none, too few repetitions"
    if found.error == 0.0:
        if found.n < SMALLEST_EXACT:
            return None, "none, too few equal values to call them exact"
        return Interval(found.value, found.value), "exact values, no spread"
    t = critical_t(confidence, found.df)
    low, high, method = -t, t, "Welch t"
    largest = max(len(group) for group in found.groups)
    if found.n >= SMALLEST_RESAMPLED and largest <= LARGEST_RESAMPLED:
        low, high = _bootstrap(found.groups, confidence, resamples, seed)
        low, high, method = max(low, -CAP * t), min(high, CAP * t), f"bootstrap-t, {resamples} resamples"
    return Interval(found.value - high * found.error, found.value - low * found.error), method


def p_value(found: Estimate) -> float | None:
    """Of no difference from zero, by Welch's t; None where a group has one trial."""
    if found.n < 2:
        return None
    if found.error == 0.0:
        return 1.0 if found.value == 0.0 else 0.0
    return two_sided_p(found.value / found.error, found.df)


def _var_of_mean(group: Influences) -> float:
    n = len(group)
    return math.fsum(value * value for value in group) / n / (n - 1) if n > 1 else 0.0


def _bootstrap(groups: Sequence[Influences], confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Critical values of the studentised sum of the groups' means."""
    import numpy as np

    shift, var = np.zeros(resamples), np.zeros(resamples)
    for place, group in enumerate(groups):
        n = len(group)
        generator = np.random.default_rng([seed, place, n])
        counts = generator.multinomial(n, [1.0 / n] * n, size=resamples) / n
        values: Vector = np.array(group)
        means = counts @ values
        shift += means
        var += np.maximum(counts @ (values * values) - means * means, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = np.nan_to_num(shift / np.sqrt(var), nan=0.0, posinf=np.inf, neginf=-np.inf)
    tail = max(1, int((resamples + 1) * (1.0 - confidence) / 2.0 + 1e-9))
    statistics.sort()
    return float(statistics[tail - 1]), float(statistics[resamples - tail])
