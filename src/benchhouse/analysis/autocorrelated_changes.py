"""Find the changes of a history whose noise remembers, by the probability of each place.

In such noise a change and a swing look alike, and how much noise remembers is only known as well as the changes are.
So all of it is weighed together: several memories, and for each stretch of the history whether it has changes at all.
How many stretches have some is learned from the history: one without changes keeps quiet, one that is full of them is
told more of those that are doubtful.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchhouse.analysis.cuts import NEAR, likeliest
from benchhouse.analysis.segments import Vector, far, levels

SHORTEST = 10  # runs in the shortest level: ten that remember tell no more of it than three that do not

_TOLD = 0.15  # probability of a change within NEAR runs from which on it is told
_HAZARD = 0.01  # changes a run, in a stretch that has some
_STEP = 1.0  # typical size of steps, in deviations of the noise
_WINDOW, _MARGIN = 200, 40
_GRID = (0.1, 0.0, -0.1, -0.2, -0.3)  # memories that are weighed, from what a rough search leaves
_MOST = 0.9
_CLIP, _FADED = 4.0, 50  # median shocks (2.7 deviations of normal ones); runs that remember a shock
_CLEAR = 5.0  # deviations of a run given the last: a step that leaves no doubt of its place
_LEARNING = 20
_OFF_CENTRE = 0.01  # each run by which a place is off: of windows that hold as much, the one about the middle
_CHANGING = 0.5
_KNOWN = 25  # runs by which an old level is typically known


class Posterior(NamedTuple):
    """What was found in each series."""

    chances: Vector  # the probability that a new level begins at each run
    changing: Vector  # log evidence of a series with changes at `hazard`
    steady: Vector  # log evidence of the same series with none


def weigh(calm: Vector, cuts: list[int], memory: float, least: float, floor: float) -> tuple[list[int], float]:
    """Where new levels begin, and the likeliest memory; `cuts` and `memory` are those of a rough search."""
    n, means = len(calm), levels(calm, cuts)
    calm = _tame(calm, means, cuts, memory)
    memories = np.unique(np.clip([memory + by for by in _GRID], 0.0, _MOST))
    errors = _errors(calm - means, memories, len(cuts), least)
    belief, windows = _ask(calm, means, cuts, memories, errors)
    weights, shares = _learn(belief, len(windows), len(memories), n / sum(end - start for start, end in windows))
    likeliest = int(weights.argmax())
    if not memories[likeliest]:
        return [], 0.0
    chances = np.einsum("m,wm,wmt->wt", weights, shares, belief.chances.reshape(len(windows), len(memories), -1))
    peaks, memory = _peaks(_join(chances, windows, n)), float(memories[likeliest])
    return _drop_small(calm, peaks, memory, float(errors[likeliest]), floor), memory


def _tame(calm: Vector, means: Vector, cuts: list[int], memory: float) -> Vector:
    """Far shocks pulled in, with what the noise remembers of them: else one would look like a level that fades."""
    off = calm - means
    shocks = off[1:] - memory * off[:-1]
    limit = far(shocks, _CLIP)
    surplus = shocks - np.clip(shocks, -limit, limit)
    for cut in cuts:  # a rough place may be off by a few runs, and a step is no shock
        surplus[max(0, cut - 1 - NEAR) : cut + NEAR] = 0.0
    tamed = calm.copy()
    for at in (np.flatnonzero(surplus) + 1).tolist():
        fading = surplus[at - 1] * memory ** np.arange(min(_FADED, len(calm) - at))
        tamed[at : at + len(fading)] -= fading
    return tamed


def _errors(off: Vector, memories: Vector, cuts: int, least: float) -> Vector:
    """For each memory, the deviation of a run given the last."""
    free = len(off) / max(1, len(off) - cuts - 1)
    squares = [float(np.mean((off[1:] - memory * off[:-1]) ** 2)) for memory in memories]
    return np.maximum(np.sqrt(np.array(squares) * free), least)


def _ask(
    calm: Vector, means: Vector, cuts: list[int], memories: Vector, errors: Vector
) -> tuple[Posterior, list[tuple[int, int]]]:
    """Weigh each window with each memory."""
    windows, each = _windows(len(calm)), len(memories)
    x = np.repeat(np.array([calm[start:end] for start, end in windows]), each, axis=0)
    starts = np.repeat(means[[start for start, _ in windows]], each)
    memory, error = np.tile(memories, len(windows)), np.tile(errors, len(windows))
    # The quadratic mean of the steps that are plain to see, one of the size of the noise counted among them.
    squares = [float(means[cut] - means[cut - 1]) ** 2 for cut in cuts]
    squares.append((_STEP * float(np.std(calm - means))) ** 2)
    step = np.full(len(x), math.sqrt(math.fsum(squares) / len(squares)))
    return believe(x, starts, memory, error, step, _HAZARD, SHORTEST), windows


def _windows(n: int) -> list[tuple[int, int]]:
    """Stretches of equal length that overlap by at least two margins."""
    if n <= _WINDOW:
        return [(0, n)]
    count = math.ceil((n - 2 * _MARGIN) / (_WINDOW - 2 * _MARGIN))
    return [(start, start + _WINDOW) for start in (round(at * (n - _WINDOW) / (count - 1)) for at in range(count))]


def _learn(belief: Posterior, windows: int, memories: int, once: float) -> tuple[Vector, Vector]:
    """The probability of each memory, and for each window and memory that of changes.

    The share of windows that have changes is learned from all of them, half and half to begin with. Windows overlap:
    `once` is what their evidence counts.
    """
    changing, steady = (part.reshape(windows, memories) for part in (belief.changing, belief.steady))
    share = _CHANGING
    for _ in range(_LEARNING if windows > 1 else 1):
        either = np.logaddexp(changing + math.log(share), steady + math.log1p(-share))
        logs = once * either.sum(axis=0)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        shares = np.exp(changing + math.log(share) - either)
        if windows > 1:
            share = (float((shares @ weights).sum()) * once + _CHANGING) / (windows * once + 1.0)
    return weights, shares


def _join(chances: Vector, windows: list[tuple[int, int]], n: int) -> Vector:
    """One series again: each run from the window in whose middle it is most."""
    joined = np.zeros(n)
    edges = [0, *((before[1] + after[0]) // 2 for before, after in pairwise(windows)), n]
    for row, (start, _), (first, last) in zip(chances, windows, pairwise(edges), strict=True):
        joined[first:last] = row[first - start : last - start]
    return joined


def _peaks(chances: Vector) -> list[int]:
    """Places that have a change near them with some probability, the likeliest first taken, none near another."""
    around = np.abs(np.arange(-NEAR, NEAR + 1))
    near = np.convolve(chances, 1.0 - _OFF_CENTRE * around, "same")
    peaks = []
    while near[at := int(near.argmax())] > _TOLD:
        peaks.append(at)
        near[max(0, at - SHORTEST) : at + SHORTEST + 1] = 0.0
    return sorted(peaks)


def _drop_small(calm: Vector, cuts: list[int], memory: float, error: float, floor: float) -> list[int]:
    """The size of a change is that of its likeliest place, as where noise does not remember.

    A clear one may be nearer to an end of the history than the shortest level that is weighed.
    """
    kept, n = list(cuts), len(calm)
    while kept:
        edges = [0, *kept, n]
        places = [likeliest(calm, *span, memory, error) for span in zip(edges, kept, edges[2:], strict=False)]
        sizes = [abs(size) for _, size in places]
        if min(sizes) >= floor:
            clear = [min(at, n - at) < SHORTEST and abs(size) > _CLEAR * error for at, size in places]
            return [place[0] if moves else cut for cut, place, moves in zip(kept, places, clear, strict=True)]
        del kept[sizes.index(min(sizes))]
    return kept


def believe(
    x: Vector, start: Vector, memory: Vector, error: Vector, step: Vector, hazard: float, shortest: int
) -> Posterior:
    """Weigh all places in each row of `x`, which begins about the level `start`.

    `error` is the deviation of a run given the last, `step` that of the steps.
    """
    rows, n = x.shape
    u = (x - start[:, None]) / error[:, None]
    y = np.zeros_like(u)
    y[:, 1:] = u[:, 1:] - memory[:, None] * u[:, :-1]
    keep = 1.0 - memory
    sums_kept = keep[:, None] * np.cumsum(y, axis=1)
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
    pull, lift = weight[:, None] * y - sums_kept, weight * memory + prior
    base, offset = np.empty((rows, n)), np.empty((rows, n))
    base[:, 0] = 0.5 * np.log(weight + prior) - 0.5 * (1.0 - memory**2) * u[:, 0] ** 2
    offset[:, 0] = (1.0 - memory**2) * u[:, 0]
    base[:, 1:shortest], offset[:, 1:shortest] = -np.inf, 0.0
    steady = base[:, 0] + (offset[:, 0] + sums_kept[:, -1]) ** 2 * half[:, 0, 0] - norm[:, 0, 0]
    blocks, total = [], steady
    # As levels last `shortest` runs, so many ends hang on no start among them: they are weighed at once.
    for at in range(shortest - 1, n, shortest):
        size = min(shortest, n - at)
        ends = slice(n - 1 - at, n - 1 - at - size if at + size < n else None, -1)
        moved = offset[:, None, : at + 1] + sums_kept[:, at : at + size, None]
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
    return Posterior(_smooth_backward(blocks, n, shortest), total + squares + rest, steady + squares)


def _smooth_backward(blocks: list[tuple[Vector, Vector]], n: int, shortest: int) -> Vector:
    """From the end: how likely each start is, given that a level ended there."""
    ends = np.zeros((len(blocks[0][1]), n))
    ends[:, -1] = 1.0
    for at, (logs, sums) in zip(range(len(blocks) * shortest - 1, 0, -shortest), reversed(blocks), strict=True):
        shares = (ends[:, at : at + sums.shape[1]] / sums).astype(np.float32)
        ends[:, :at] += np.matmul(shares[:, None, :], logs)[:, 0, 1:]
    chances = np.zeros_like(ends)
    chances[:, 1:] = ends[:, :-1]
    return chances
