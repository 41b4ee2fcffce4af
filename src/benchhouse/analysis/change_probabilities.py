"""How likely does a new level begin at each run, in noise that remembers? All places are weighed at once.

Levels follow each other by steps of some size (normal, `step` deviations of the noise), at `hazard` a run; noise is
AR(1). A filter goes through the runs once and keeps, for each place where the present level may have begun, how well
that explains what came since; a second pass from the end gives the probability of each place, later runs counted.
The old level is taken as known to what the runs before tell of it, so the sums stay those of a normal distribution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_KNOWN = 25  # runs by which an old level is typically known


class Belief(NamedTuple):
    """What was found in each series."""

    chances: Array
    """The probability that a new level begins at each run."""
    changing: Array
    """Log evidence of a series with changes at `hazard`."""
    steady: Array
    """Log evidence of the same series with none."""


def believe(x: Array, start: Array, memory: Array, error: Array, step: Array, hazard: float, shortest: int) -> Belief:
    """Weigh all places in each row of `x`, which begins about the level `start`.

    `error` is the deviation of a run given the last, `step` that of the steps.
    """
    import numpy as np

    rows, n = x.shape
    u = (x - start[:, None]) / error[:, None]
    y = np.zeros_like(u)
    y[:, 1:] = u[:, 1:] - memory[:, None] * u[:, :-1]
    keep = 1.0 - memory
    told = keep[:, None] * np.cumsum(y, axis=1)
    # The first run of a new level tells `weight` of it (the old level is not exactly known), the old level `prior`.
    weight = 1.0 / (1.0 + memory**2 / (1.0 + _KNOWN * keep**2))
    prior = (error / step) ** 2
    ages = np.arange(n - 1, -n, -1)
    known = (weight + prior)[:, None] + (keep**2)[:, None] * np.maximum(ages, 0)
    # As [row, n - 1 - end, start]: what is known at that end of a level since that start; no level ends too soon.
    half = np.lib.stride_tricks.sliding_window_view(0.5 / known, n, axis=1)
    norm = np.lib.stride_tricks.sliding_window_view(
        np.where(ages < shortest - 1, np.inf, 0.5 * np.log(known)), n, axis=1
    )
    moves = math.log(hazard / (1.0 - hazard)) + 0.5 * np.log(prior * weight)
    fixed = moves[:, None] + 0.5 * (1.0 - weight)[:, None] * y * y
    slope, bend = (weight * memory)[:, None] * y, 0.5 * (weight * memory**2 + prior)
    pull, lift = weight[:, None] * y - told, weight * memory + prior
    base, offset = np.empty((rows, n)), np.empty((rows, n))
    base[:, 0] = 0.5 * np.log(weight + prior) - 0.5 * (1.0 - memory**2) * u[:, 0] ** 2
    offset[:, 0] = (1.0 - memory**2) * u[:, 0]
    base[:, 1:shortest], offset[:, 1:shortest] = -np.inf, 0.0
    steady = base[:, 0] + (offset[:, 0] + told[:, -1]) ** 2 * half[:, 0, 0] - norm[:, 0, 0]
    blocks, total = [], steady
    # As levels last `shortest` runs, so many ends hang on no start among them: they are weighed at once.
    for at in range(shortest - 1, n, shortest):
        size = min(shortest, n - at)
        ends = slice(n - 1 - at, n - 1 - at - size if at + size < n else None, -1)
        moved = offset[:, None, : at + 1] + told[:, at : at + size, None]
        scaled = moved * half[:, ends, : at + 1]
        logs = np.multiply(moved, scaled, out=moved)
        logs += base[:, None, : at + 1]
        logs -= norm[:, ends, : at + 1]
        top = logs.max(axis=2)
        logs -= top[:, :, None]
        shares = np.exp(logs.astype(np.float32))  # half the time, and seven digits of a probability are plenty
        sums = shares.sum(axis=2)
        blocks.append((shares, sums))
        totals = top + np.log(sums)
        total = totals[:, -1]
        if at + size < n:  # then the block is a whole one, and levels may begin after each of its runs
            new = slice(at + 1, at + 1 + size)
            level = 2.0 * np.einsum("ijk,ijk->ij", shares, scaled.astype(np.float32)) / sums
            base[:, new] = totals + fixed[:, new] - level * (slope[:, new] + bend[:, None] * level)
            offset[:, new] = pull[:, new] + lift[:, None] * level
    rest = n * math.log(1.0 - hazard)
    squares = -0.5 * np.einsum("ij,ij->i", y, y) - n * np.log(error) + 0.5 * np.log(1.0 - memory**2)
    return Belief(_look_back(blocks, n, shortest), total + squares + rest, steady + squares)


def _look_back(blocks: list[tuple[Array, Array]], n: int, shortest: int) -> Array:
    """From the end: how likely each start is, given that a level ended there."""
    import numpy as np

    ends = np.zeros((len(blocks[0][1]), n))
    ends[:, -1] = 1.0
    for at, (logs, sums) in zip(range(len(blocks) * shortest - 1, 0, -shortest), reversed(blocks), strict=True):
        shares = (ends[:, at : at + sums.shape[1]] / sums).astype(np.float32)
        ends[:, :at] += np.matmul(shares[:, None, :], logs)[:, 0, 1:]
    chances = np.zeros_like(ends)
    chances[:, 1:] = ends[:, :-1]
    return chances
