"""Find where the level of a series changes, pulling in outliers and estimating the memory of its noise on the way."""

import math
from typing import NamedTuple

import numpy as np

from benchhouse.analysis import autocorrelated_changes
from benchhouse.analysis.cuts import place, prune
from benchhouse.analysis.segments import Vector, far, halve, levels, median, medians, segment

SHORTEST = 5  # runs in the shortest stretch that counts as a level

_MAD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
_ROLLING = 11
_FIRST_CLIP, _CLIP = 3.0, 2.5  # standard deviations beyond which a value counts no more than one at that distance
_ROUNDS = 2
_ROUGH, _EXACT = 14.0, 9.0  # penalties per cut, in variances of the noise
_LEAST_MEMORY, _MOST_MEMORY = 0.1, 0.9
_DOUBTFUL = 0.7


class LevelSearchResult(NamedTuple):
    calm: Vector
    memory: float
    cuts: list[int]
    sd: float  # of the whitened series


def search(x: Vector, least: float, floor: float) -> LevelSearchResult:
    off = x - _rolling_median(x)
    first = x - off + _clip(off, _FIRST_CLIP)
    calm, memory, rough = _settle(x, first, least)
    if memory and len(x) >= 2 * autocorrelated_changes.SHORTEST:
        cuts, memory = autocorrelated_changes.weigh(calm, rough, memory, least, floor)
        if memory:
            calm = _calm(x, cuts)
            return LevelSearchResult(calm, memory, cuts, _deviation(_whiten(calm, memory), cuts, least))
    sd = max(math.sqrt(_mean_square(np.diff(calm)) / 2.0), least)
    exact = segment(calm, _EXACT * sd * sd, SHORTEST)
    cuts = _move_outer(x, exact, sd)
    if cuts != exact:
        calm = _calm(x, cuts)
    sd = _deviation(calm, cuts, least)
    skewness = float(np.mean((calm - levels(calm, cuts)) ** 3)) / sd**3
    cuts = prune(x, cuts, sd, floor, skewness)
    return LevelSearchResult(_calm(x, cuts), 0.0, cuts, sd)


def _calm(x: Vector, cuts: list[int]) -> Vector:
    """Return the series with its outliers pulled in to the levels between these cuts."""
    centres = medians(x, cuts)
    return centres + _clip(x - centres, _CLIP)


def _move_outer(x: Vector, cuts: list[int], sd: float) -> list[int]:
    """Move outer cuts: one at the shortest distance from an end may belong closer to it, as that level began only a few
    runs ago.
    """
    moved, edges = list(cuts), [0, *cuts, len(x)]
    for at, cut in enumerate(cuts):
        if min(cut, len(x) - cut) == SHORTEST:
            moved[at] = place(x, edges[at], cut, edges[at + 2], sd).at
    return moved


def _settle(x: Vector, first: Vector, least: float) -> tuple[Vector, float, list[int]]:
    """Return the series with its outliers pulled in, the memory of its noise, and rough cuts.

    Large changes look like strong memory and hide behind it. A search that starts without memory may then explain more.
    """
    near, far = _mean_square(x[1:] - x[:-1]), _mean_square(x[2:] - x[:-2])
    # Differences over two runs and over one: a few changes of level hardly affect them.
    guess = far / near - 1.0 if near else 0.0
    settled = _iterate(x, first, _significant(guess, len(x)), least)
    if settled[1] <= _DOUBTFUL:
        return settled
    answers = [settled, _iterate(x, first, 0.0, least)]
    errors = []
    for _, memory, cuts in answers:
        off = x - medians(x, cuts)
        errors.append(off[1:] - memory * off[:-1])
    limit = 4.0 * _MAD * max(min(median(np.abs(error)) for error in errors), least)
    costs = [
        len(x) * math.log(float(np.mean(np.clip(error, -limit, limit) ** 2)) + least * least) + _ROUGH * len(cuts)
        for error, (_, _, cuts) in zip(errors, answers, strict=True)
    ]
    return answers[costs.index(min(costs))]


def _deviation(white: Vector, cuts: list[int], least: float) -> float:
    residuals = white - levels(white, cuts)
    return max(math.sqrt(float(residuals @ residuals) / max(1, len(white) - len(cuts) - 1)), least)


def _iterate(x: Vector, calm: Vector, memory: float, least: float) -> tuple[Vector, float, list[int]]:
    cuts: list[int] = []
    for _ in range(_ROUNDS):
        white = _whiten(calm, memory)
        variance = max(_mean_square(np.diff(white)) / 2.0, least * least)
        cuts = halve(white, _ROUGH * variance, SHORTEST)
        if not memory:
            cuts = _move_outer(x, cuts, math.sqrt(variance))
        calm = _calm(x, cuts)
        memory = _significant(residual_memory(calm - levels(calm, cuts), len(cuts) + 1, least), len(x))
    return calm, memory, cuts


def _rolling_median(x: Vector) -> Vector:
    half = min(_ROLLING // 2, len(x) - 1)
    padded = np.concatenate([x[half:0:-1], x, x[-2 : -half - 2 : -1]])
    around = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    middles: Vector = around[:, half]
    return middles


def _clip(off: Vector, deviations: float, share: float = 0.1) -> Vector:
    limit = far(off, deviations * _MAD, share)
    clipped: Vector = np.clip(off, -limit, limit)
    return clipped


def _mean_square(steps: Vector) -> float:
    """Return the mean square of differences; those from changes and outliers count as at most three deviations."""
    return float(np.mean(_clip(steps, 3.0, 0.2) ** 2))


def residual_memory(residuals: Vector, fitted: int, least: float) -> float:
    """Return the correlation of neighbors about their levels, corrected for the bias of the `fitted` levels.

    Zero if the noise is below `least`: it is assumed to be that large, and its behavior below that does not matter.
    """
    n, total = len(residuals), float(residuals @ residuals)
    if total <= n * least * least:
        return 0.0
    memory = float(residuals[1:] @ residuals[:-1]) / total
    return memory + (1.0 + 3.0 * memory) * fitted / n


def least_memory(n: int) -> float:
    """Return the smallest memory that counts: below it, chance alone could look so, or it hardly matters. Assuming
    memory that does not exist costs sensitivity.
    """
    return max(2.5 / math.sqrt(n), _LEAST_MEMORY)


def _significant(memory: float, n: int) -> float:
    return min(memory, _MOST_MEMORY) if memory > least_memory(n) else 0.0


def _whiten(x: Vector, memory: float) -> Vector:
    """Return the same levels with independent noise, which is larger by the effect of the memory."""
    if not memory:
        return x
    white = x.copy()
    white[1:] = (x[1:] - memory * x[:-1]) / (1.0 - memory)
    return white
