"""Find the changes of a history whose noise remembers, by the probability of each place.

In such noise a change and a swing look alike, and how much noise remembers is only known as well as the changes are.
So all of it is weighed together: several memories, and for each stretch of the history whether it has changes at all.
How many stretches have some is learned from the history: one without changes keeps quiet, one that is full of them is
told more of those that are doubtful.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from benchhouse.analysis.change_position import NEAR, size_step
from benchhouse.analysis.change_probabilities import Belief, believe
from benchhouse.analysis.segments import means, median

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

SHORTEST = 10
"""Runs in the shortest level: ten that remember tell no more of it than three that do not."""

_TOLD = 0.15  # probability of a change within NEAR runs from which on it is told
_HAZARD = 0.01  # changes a run, in a stretch that has some
_STEP = 1.0  # typical size of steps, in deviations of the noise
_WINDOW, _MARGIN = 200, 40
_GRID = (0.1, 0.0, -0.1, -0.2, -0.3)  # memories that are weighed, from what a rough search leaves
_MOST = 0.9
_CLIP, _FADED = 4.0, 50  # median shocks (2.7 deviations of normal ones); runs that remember a shock
_LEARNING = 20
_OFF_CENTRE = 0.01  # each run by which a place is off: of windows that hold as much, the one about the middle
_CHANGING = 0.5


def weigh(calm: Vector, cuts: list[int], memory: float, least: float, floor: float) -> tuple[list[int], float]:
    """Where new levels begin, and the likeliest memory; `cuts` and `memory` are those of a rough search."""
    import numpy as np

    n = len(calm)
    levels = np.repeat(means(calm, cuts), np.diff([0, *cuts, n]))
    calm = _tame(calm, levels, cuts, memory)
    memories = np.unique(np.clip([memory + by for by in _GRID], 0.0, _MOST))
    errors = _errors(calm - levels, memories, len(cuts), least)
    belief, windows = _ask(calm, levels, cuts, memories, errors)
    weights, shares = _learn(belief, len(windows), len(memories), n / sum(end - start for start, end in windows))
    likeliest = int(weights.argmax())
    if not memories[likeliest]:
        return [], 0.0
    told = np.einsum("m,wm,wmt->wt", weights, shares, belief.chances.reshape(len(windows), len(memories), -1))
    found, memory = _peaks(_join(told, windows, n)), float(memories[likeliest])
    return _drop_small(calm, found, memory, float(errors[likeliest]), floor), memory


def _tame(calm: Vector, levels: Vector, cuts: list[int], memory: float) -> Vector:
    """Far shocks pulled in, with what the noise remembers of them: else one would look like a level that fades."""
    import numpy as np

    off = calm - levels
    shocks = off[1:] - memory * off[:-1]
    limit = _CLIP * median(np.abs(shocks))
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
    import numpy as np

    free = len(off) / max(1, len(off) - cuts - 1)
    squares = [float(np.mean((off[1:] - memory * off[:-1]) ** 2)) for memory in memories]
    return np.maximum(np.sqrt(np.array(squares) * free), least)


def _ask(
    calm: Vector, levels: Vector, cuts: list[int], memories: Vector, errors: Vector
) -> tuple[Belief, list[tuple[int, int]]]:
    """Weigh each window with each memory."""
    import numpy as np

    windows, each = _windows(len(calm)), len(memories)
    x = np.repeat(np.array([calm[start:end] for start, end in windows]), each, axis=0)
    starts = np.repeat(levels[[start for start, _ in windows]], each)
    memory, error = np.tile(memories, len(windows)), np.tile(errors, len(windows))
    step = np.full(len(x), _typical_step(levels, cuts, float(np.std(calm - levels))))
    return believe(x, starts, memory, error, step, _HAZARD, SHORTEST), windows


def _typical_step(levels: Vector, cuts: list[int], spread: float) -> float:
    """The quadratic mean of the steps that are plain to see, one of the size of the noise counted among them."""
    sizes = [float(levels[cut] - levels[cut - 1]) for cut in cuts]
    return math.sqrt((math.fsum(size * size for size in sizes) + (_STEP * spread) ** 2) / (len(sizes) + 1))


def _windows(n: int) -> list[tuple[int, int]]:
    """Stretches of equal length that overlap by at least two margins."""
    if n <= _WINDOW:
        return [(0, n)]
    count = math.ceil((n - 2 * _MARGIN) / (_WINDOW - 2 * _MARGIN))
    return [(start, start + _WINDOW) for start in (round(at * (n - _WINDOW) / (count - 1)) for at in range(count))]


def _learn(belief: Belief, windows: int, memories: int, once: float) -> tuple[Vector, Vector]:
    """The probability of each memory, and for each window and memory that of changes.

    The share of windows that have changes is learned from all of them, half and half to begin with. Windows overlap:
    `once` is what their evidence counts.
    """
    import numpy as np

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


def _join(told: Vector, windows: list[tuple[int, int]], n: int) -> Vector:
    """One series again: each run from the window in whose middle it is most."""
    import numpy as np

    joined = np.zeros(n)
    edges = [0, *((before[1] + after[0]) // 2 for before, after in pairwise(windows)), n]
    for row, (start, _), (first, last) in zip(told, windows, pairwise(edges), strict=True):
        joined[first:last] = row[first - start : last - start]
    return joined


def _peaks(chances: Vector) -> list[int]:
    """Places that have a change near them with some probability, the likeliest first taken, none near another."""
    import numpy as np

    around = np.abs(np.arange(-NEAR, NEAR + 1))
    near = np.convolve(chances, 1.0 - _OFF_CENTRE * around, "same")
    found = []
    while near[at := int(near.argmax())] > _TOLD:
        found.append(at)
        near[max(0, at - SHORTEST) : at + SHORTEST + 1] = 0.0
    return sorted(found)


def _drop_small(calm: Vector, cuts: list[int], memory: float, error: float, floor: float) -> list[int]:
    """The size of a change is that of its likeliest place, as where noise does not remember."""
    kept = list(cuts)
    while kept:
        edges = [0, *kept, len(calm)]
        spans = zip(edges, kept, edges[2:], strict=False)
        sizes = [abs(size_step(calm, *span, memory, error)) for span in spans]
        if min(sizes) >= floor:
            break
        del kept[sizes.index(min(sizes))]
    return kept
