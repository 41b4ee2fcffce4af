"""Cut a series into stretches of one level each: exactly, with the least penalized squares; or roughly and quickly."""

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_PRUNE_EVERY = 16  # steps: searching for starts that cannot win anymore costs about one step
_WORTH_PRUNING = 48


def segment(values: Vector, penalty: float, shortest: int) -> list[int]:
    """Return where new levels begin: the cuts that minimize squares about the levels plus `penalty` per cut (PELT).

    The result is exact: every start that could still be the best one is compared at every place.
    """
    n = len(values)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    at_sum: list[float] = sums.tolist()
    starts, start_sums, start_costs = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    room, lengths = np.empty(n + 1), np.empty(n + 1)
    best, before = [math.inf] * (n + 1), [0] * (n + 1)
    count = 1
    for end in range(shortest, n + 1):
        costs = np.subtract(at_sum[end], start_sums[:count], out=room[:count])
        np.multiply(costs, costs, out=costs)
        np.divide(costs, np.subtract(end, starts[:count], out=lengths[:count]), out=costs)
        np.subtract(start_costs[:count], costs, out=costs)
        least = int(costs.argmin())
        best[end], before[end] = float(costs[least]) + penalty, int(starts[least])
        if count >= _WORTH_PRUNING and not end % _PRUNE_EVERY:
            kept = np.flatnonzero(costs <= best[end])
            count = len(kept)
            for column in (starts, start_sums, start_costs):
                column[:count] = column[kept]
        if (start := end - shortest + 1) >= shortest:
            starts[count], start_sums[count], start_costs[count] = start, at_sum[start], best[start]
            count += 1
    cuts, end = [], n
    while before[end] > 0:
        end = before[end]
        cuts.append(end)
    return cuts[::-1]


def halve(values: Vector, penalty: float, shortest: int) -> list[int]:
    """Return about the same cuts by binary segmentation: cut where it helps most, then search both halves."""
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    waiting, cuts = [(0, len(values))], []
    while waiting:
        start, end = waiting.pop()
        length = end - start
        if length < 2 * shortest:
            continue
        left = np.arange(shortest, length - shortest + 1)
        shifts = sums[start + shortest : end - shortest + 1] - sums[start] - left * ((sums[end] - sums[start]) / length)
        gains = shifts * shifts / (left * (length - left))
        most = int(gains.argmax())
        if gains[most] * length > penalty:
            cut = start + shortest + most
            cuts.append(cut)
            waiting += [(start, cut), (cut, end)]
    return sorted(cuts)


def median(values: Vector) -> float:
    """Return numpy's median of finite values, in a quarter of its time for a few hundred values."""
    middle = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, middle)[middle])
    parted = np.partition(values, (middle - 1, middle))
    return float(parted[middle - 1] + parted[middle]) / 2.0


def far(off: Vector, medians: float, share: float = 0.1) -> float:
    """Return the distance beyond which a value is an outlier: `medians` times the median distance, at most `share` of
    values.

    With two modes, or counts that are mostly zero, half of the values lie at nearly the same place: the rest are not
    outliers.
    """
    sizes = np.abs(off)
    last = len(sizes) - 1 - math.ceil(share * len(sizes))
    return max(medians * median(sizes), float(np.partition(sizes, last)[last]))


def medians(values: Vector, cuts: list[int]) -> Vector:
    """Return, for every place, the median of its stretch."""
    levels = np.empty(len(values))
    for start, end in pairwise([0, *cuts, len(values)]):
        levels[start:end] = median(values[start:end])
    return levels


def means(values: Vector, cuts: list[int]) -> list[float]:
    """Return the mean of each stretch."""
    edges = [0, *cuts, len(values)]
    stretches: list[float] = (np.add.reduceat(values, edges[:-1]) / np.diff(edges)).tolist()
    return stretches


def levels(values: Vector, cuts: list[int]) -> Vector:
    """Return, for every place, the mean of its stretch."""
    return np.repeat(means(values, cuts), np.diff([0, *cuts, len(values)]))
