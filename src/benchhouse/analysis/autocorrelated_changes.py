"""Find the changes of a history with autocorrelated noise, by the probability of a change at each run.

In such noise, a change and a random swing look alike, and the autocorrelation ("memory") is known only as well as the
changes are. All of it is therefore weighed together: several memories, and for each stretch of the history whether it
has changes at all. The share of stretches with changes is learned from the history: a history without changes stays
quiet, and in one with many changes, more of the doubtful ones are reported.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchhouse.analysis.cuts import NEAR, likeliest
from benchhouse.analysis.segments import Vector, far, levels

SHORTEST = 10  # shortest level: ten autocorrelated runs say no more about it than three independent ones

_TOLD = 0.15  # smallest probability of a change within NEAR runs at which it is reported
_HAZARD = 0.01  # changes per run, in a stretch that has some
_STEP = 1.0  # typical size of steps, in standard deviations of the noise
_WINDOW, _MARGIN = 200, 40
_GRID = (0.1, 0.0, -0.1, -0.2, -0.3)  # memories to weigh, relative to the estimate of the rough search
_MOST = 0.9
_CLIP, _FADED = 4.0, 50  # median shocks (2.7 standard deviations if normal); runs until a shock has faded
_CLEAR = 5.0  # standard deviations of a run given the previous one: the place of such a step is certain
_LEARNING = 20
_OFF_CENTRE = 0.01  # penalty per run off center: of windows with the same probability, the centered one is chosen
_CHANGING = 0.5
_KNOWN = 25  # typical number of runs that determine an old level


class Posterior(NamedTuple):
    """The result of `believe` for each series."""

    chances: Vector  # the probability that a new level begins at each run
    changing: Vector  # log evidence for a series with changes at `hazard`
    steady: Vector  # log evidence for the same series without changes


def weigh(calm: Vector, cuts: list[int], memory: float, least: float, floor: float) -> tuple[list[int], float]:
    """Return the runs where new levels begin, and the likeliest memory; `cuts` and `memory` are from a rough search."""
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
    """Return the series with far shocks and their autocorrelated aftereffect pulled in; otherwise they look like a
    fading level.
    """
    off = calm - means
    shocks = off[1:] - memory * off[:-1]
    limit = far(shocks, _CLIP)
    surplus = shocks - np.clip(shocks, -limit, limit)
    for cut in cuts:  # a rough cut may be off by a few runs, and a step is not a shock
        surplus[max(0, cut - 1 - NEAR) : cut + NEAR] = 0.0
    tamed = calm.copy()
    for at in (np.flatnonzero(surplus) + 1).tolist():
        fading = surplus[at - 1] * memory ** np.arange(min(_FADED, len(calm) - at))
        tamed[at : at + len(fading)] -= fading
    return tamed


def _errors(off: Vector, memories: Vector, cuts: int, least: float) -> Vector:
    """Return the standard deviation of a run given the previous one, for each memory."""
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
    # The root mean square of the steps that are plain to see, plus one step of the size of the noise.
    squares = [float(means[cut] - means[cut - 1]) ** 2 for cut in cuts]
    squares.append((_STEP * float(np.std(calm - means))) ** 2)
    step = np.full(len(x), math.sqrt(math.fsum(squares) / len(squares)))
    return believe(x, starts, memory, error, step, _HAZARD, SHORTEST), windows


def _windows(n: int) -> list[tuple[int, int]]:
    """Return stretches of equal length that overlap by at least two margins."""
    if n <= _WINDOW:
        return [(0, n)]
    count = math.ceil((n - 2 * _MARGIN) / (_WINDOW - 2 * _MARGIN))
    return [(start, start + _WINDOW) for start in (round(at * (n - _WINDOW) / (count - 1)) for at in range(count))]


def _learn(belief: Posterior, windows: int, memories: int, once: float) -> tuple[Vector, Vector]:
    """Return the probability of each memory, and the probability of changes for each window and memory.

    The share of windows with changes starts at one half and is learned from all windows. Windows overlap: `once` is the
    weight of their evidence.
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
    """Join the windows into one series; each run comes from the window in which it is nearest to the middle."""
    joined = np.zeros(n)
    edges = [0, *((before[1] + after[0]) // 2 for before, after in pairwise(windows)), n]
    for row, (start, _), (first, last) in zip(chances, windows, pairwise(edges), strict=True):
        joined[first:last] = row[first - start : last - start]
    return joined


def _peaks(chances: Vector) -> list[int]:
    """Return runs that probably have a change near them; the likeliest is taken first, and none is near another."""
    around = np.abs(np.arange(-NEAR, NEAR + 1))
    near = np.convolve(chances, 1.0 - _OFF_CENTRE * around, "same")
    peaks = []
    while near[at := int(near.argmax())] > _TOLD:
        peaks.append(at)
        near[max(0, at - SHORTEST) : at + SHORTEST + 1] = 0.0
    return sorted(peaks)


def _drop_small(calm: Vector, cuts: list[int], memory: float, error: float, floor: float) -> list[int]:
    """Drop changes smaller than `floor`; the size of a change is that at its likeliest place, as for independent noise.

    A clear change may be closer to an end of the history than the shortest level that is weighed.
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
    """Weigh all places in each row of `x`, which begins near the level `start`.

    `error` is the standard deviation of a run given the previous one, `step` that of the steps.
    """
    rows, n = x.shape
    u = (x - start[:, None]) / error[:, None]
    y = np.zeros_like(u)
    y[:, 1:] = u[:, 1:] - memory[:, None] * u[:, :-1]
    keep = 1.0 - memory
    sums_kept = keep[:, None] * np.cumsum(y, axis=1)
    # `weight` is the information of the first run about its new level (the old level is not exactly known), `prior`
    # that of the old level.
    weight = 1.0 / (1.0 + memory**2 / (1.0 + _KNOWN * keep**2))
    prior = (error / step) ** 2
    ages = np.arange(n - 1, -n, -1)
    known = (weight + prior)[:, None] + (keep**2)[:, None] * np.maximum(ages, 0)
    # Indexed [row, n - 1 - end, start]: the information at that end of a level that began at that start; a level that
    # would end too soon gets none.
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
    # Levels last at least `shortest` runs, so that many ends do not depend on a start among them and are weighed at
    # once.
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
        shares = np.exp(logs.astype(np.float32))  # half the time, and seven digits of a probability are enough
        sums = shares.sum(axis=2)
        blocks.append((shares, sums))
        totals = top + np.log(sums)
        total = totals[:, -1]
        if at + size < n:  # then the block is complete, and levels may begin after each of its runs
            new = slice(at + 1, at + 1 + size)
            level = 2.0 * np.einsum("ijk,ijk->ij", shares, scaled.astype(np.float32)) / sums
            base[:, new] = totals + fixed[:, new] - level * (slope[:, new] + bend[:, None] * level)
            offset[:, new] = pull[:, new] + lift[:, None] * level
    rest = n * math.log(1.0 - hazard)
    squares = -0.5 * np.einsum("ij,ij->i", y, y) - n * np.log(error) + 0.5 * np.log(1.0 - memory**2)
    return Posterior(_smooth_backward(blocks, n, shortest), total + squares + rest, steady + squares)


def _smooth_backward(blocks: list[tuple[Vector, Vector]], n: int, shortest: int) -> Vector:
    """Smooth backward from the end: return how likely each start is, given that a level ended there."""
    ends = np.zeros((len(blocks[0][1]), n))
    ends[:, -1] = 1.0
    for at, (logs, sums) in zip(range(len(blocks) * shortest - 1, 0, -shortest), reversed(blocks), strict=True):
        shares = (ends[:, at : at + sums.shape[1]] / sums).astype(np.float32)
        ends[:, :at] += np.matmul(shares[:, None, :], logs)[:, 0, 1:]
    chances = np.zeros_like(ends)
    chances[:, 1:] = ends[:, :-1]
    return chances
