"""Find where the level of a history changed, and say by how much and how sure that is.

A history is one number a run, in order. Its noise may have far outliers and may remember: a run after a slow one tends
to be slow too. Both make ordinary tests cry wolf. `docs/design/change-points.md` says how this was chosen and measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchhouse.analysis import autocorrelated_changes
from benchhouse.analysis.pruning import prune
from benchhouse.analysis.segments import halve, means, median, medians, segment
from benchhouse.analysis.summary import finite

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

FLOOR = 0.01
"""Smaller relative changes are not reported."""
SHORTEST = 5
"""Runs in the shortest stretch that is called a level."""

_MAD = 1.4826  # standard deviations of a normal distribution in its median absolute deviation
_ROLLING = 11
_FIRST_CLIP, _CLIP = 3.0, 2.5  # standard deviations beyond which a value counts no more than one there
_ROUNDS = 2
_ROUGH, _EXACT = 14.0, 9.0  # penalties a cut, in variances of the noise
_LEAST_MEMORY, _MOST_MEMORY = 0.1, 0.9
_DOUBTFUL = 0.7
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Change:
    """A new level that begins at `index`; `before` and `after` are the levels, far values counted as near ones."""

    index: int
    before: float
    after: float
    change: float | None
    """(after - before) / |before|, a fraction; None where the level before is zero."""
    low: float | None
    high: float | None
    """95% interval of `change`; of those that were found, so a little too far from zero (the strong ones are found)."""
    z: float
    """Standard errors between the two levels."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What a history is like between its changes."""

    memory: float
    """Correlation of a run's noise with that of the run before; 0 where there is no evidence of any."""
    raw_memory: float
    """The same as it was estimated, evidence or not."""
    spread: float
    """Standard deviation, relative to the level where all values are positive."""
    full_spread: float
    """The same with outliers counted in full."""
    error: float
    """Standard deviation that independent runs would need for means as uncertain as these are: memory counted."""


@dataclass(frozen=True, slots=True)
class History:
    """The changes of a history, and its noise."""

    n: int
    changes: tuple[Change, ...]
    noise: Noise | None
    """None where there are too few runs to tell."""


def find_changes(values: Sequence[float], *, floor: float = FLOOR) -> History:
    """Where the level of `values` (one a run, oldest first) changed by `floor` or more; refuses NaN and infinity."""
    import numpy as np

    raw = np.array(finite(values), dtype=float)
    if len(raw) < 2 * SHORTEST:
        return History(len(raw), (), None)
    logs = bool((raw > 0.0).all())  # then noise and steps are as large, in percent, at every level
    unit = 1.0 if logs else median(np.abs(raw)) or float(np.abs(raw).max()) or 1.0
    x = np.log(raw) if logs else raw / unit
    least = max(floor / SHORTEST, 1e-9)
    least_step = math.log1p(floor) if logs else floor
    found = _find(x, least, least_step)
    calm, cuts = found.calm, found.cuts
    levels = np.repeat(means(calm, cuts), np.diff([0, *cuts, len(x)]))
    spreads = float(np.std(calm - levels)), float(np.std(x - levels))
    changes = [_change(calm, at, cuts, found.sd, unit, logs=logs) for at in range(len(cuts))]
    noise = Noise(found.memory, _residual_memory(calm, cuts), *spreads, found.sd)
    return History(len(raw), tuple(changes), noise)


class _Answer(NamedTuple):
    calm: Vector
    memory: float
    cuts: list[int]
    sd: float
    """Of the whitened series."""


def _find(x: Vector, least: float, floor: float) -> _Answer:
    import numpy as np

    off = x - _rolling_median(x)
    first = x - off + _clip(off, _FIRST_CLIP)
    calm, memory, rough = _settle(x, first, least)
    if memory and len(x) >= 2 * autocorrelated_changes.SHORTEST:
        cuts, memory = autocorrelated_changes.weigh(calm, rough, memory, least, floor)
        if memory:
            white = _whiten(calm, memory)
            return _Answer(calm, memory, cuts, _deviation(white, cuts, least))
    sd = max(math.sqrt(_mean_square(np.diff(calm)) / 2.0), least)
    cuts = segment(calm, _EXACT * sd * sd, SHORTEST)
    sd = _deviation(calm, cuts, least)
    return _Answer(calm, 0.0, prune(x, cuts, sd, floor, SHORTEST), sd)


def _settle(x: Vector, first: Vector, least: float) -> tuple[Vector, float, list[int]]:
    """The series with its outliers pulled in, the memory of its noise, and rough cuts.

    Large changes look like much memory and hide behind it: then a search that starts from none may explain more.
    """
    import numpy as np

    found = _iterate(x, first, _significant(_variogram_memory(x), len(x)), least)
    if found[1] <= _DOUBTFUL:
        return found
    answers = [found, _iterate(x, first, 0.0, least)]
    errors = [_innovations(x, cuts, memory) for _, memory, cuts in answers]
    limit = 4.0 * _MAD * max(min(median(np.abs(error)) for error in errors), least)
    costs = [
        len(x) * math.log(float(np.mean(np.clip(error, -limit, limit) ** 2)) + least * least) + _ROUGH * len(cuts)
        for error, (_, _, cuts) in zip(errors, answers, strict=True)
    ]
    return answers[costs.index(min(costs))]


def _deviation(white: Vector, cuts: list[int], least: float) -> float:
    import numpy as np

    residuals = white - np.repeat(means(white, cuts), np.diff([0, *cuts, len(white)]))
    return max(math.sqrt(float(residuals @ residuals) / max(1, len(white) - len(cuts) - 1)), least)


def _iterate(x: Vector, calm: Vector, memory: float, least: float) -> tuple[Vector, float, list[int]]:
    import numpy as np

    cuts: list[int] = []
    for _ in range(_ROUNDS):
        white = _whiten(calm, memory)
        cuts = halve(white, _ROUGH * max(_mean_square(np.diff(white)) / 2.0, least * least), SHORTEST)
        levels = medians(x, cuts)
        calm = levels + _clip(x - levels, _CLIP)
        memory = _significant(_residual_memory(calm, cuts), len(x))
    return calm, memory, cuts


def _change(calm: Vector, at: int, cuts: list[int], sd: float, unit: float, *, logs: bool) -> Change:
    edges, levels = [0, *cuts, len(calm)], means(calm, cuts)
    start, cut, end = edges[at : at + 3]
    before, after = levels[at], levels[at + 1]
    error = sd * math.sqrt(1.0 / (cut - start) + 1.0 / (end - cut))
    z = abs(after - before) / error
    ends = after - before - _Z95 * error, after - before + _Z95 * error
    if logs:
        change, low, high = (math.expm1(part) for part in (after - before, *ends))
        return Change(cut, math.exp(before), math.exp(after), change, low, high, z)
    if not before:
        return Change(cut, 0.0, after * unit, None, None, None, z)
    change, low, high = ((part / abs(before)) for part in (after - before, *ends))
    return Change(cut, before * unit, after * unit, change, low, high, z)


def _rolling_median(x: Vector) -> Vector:
    import numpy as np

    half = min(_ROLLING // 2, len(x) - 1)
    padded = np.concatenate([x[half:0:-1], x, x[-2 : -half - 2 : -1]])
    around = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    rolled: Vector = around[:, half]
    return rolled


def _clip(off: Vector, deviations: float) -> Vector:
    import numpy as np

    limit = deviations * _MAD * median(np.abs(off))
    clipped: Vector = np.clip(off, -limit, limit)
    return clipped


def _mean_square(steps: Vector) -> float:
    """Of differences, those of changes and outliers counted as three deviations."""
    import numpy as np

    return float(np.mean(_clip(steps, 3.0) ** 2))


def _variogram_memory(x: Vector) -> float:
    """From differences over two runs and over one, which a few changes of level hardly touch."""
    near, far = _mean_square(x[1:] - x[:-1]), _mean_square(x[2:] - x[:-2])
    return far / near - 1.0 if near else 0.0


def _residual_memory(calm: Vector, cuts: list[int]) -> float:
    """Correlation of neighbours about their levels; each level that was fitted makes it look smaller (added back)."""
    import numpy as np

    residuals = calm - np.repeat(means(calm, cuts), np.diff([0, *cuts, len(calm)]))
    total = float(residuals @ residuals)
    found = float(residuals[1:] @ residuals[:-1]) / total if total else 0.0
    return found + (1.0 + 3.0 * found) * (len(cuts) + 1) / len(calm)


def _significant(memory: float, n: int) -> float:
    """Zero where chance alone could look so, or where it hardly matters: memory that is not there costs sight."""
    return min(memory, _MOST_MEMORY) if memory > max(2.5 / math.sqrt(n), _LEAST_MEMORY) else 0.0


def _whiten(x: Vector, memory: float) -> Vector:
    """The same levels, with noise that does not remember (and is larger by what memory made of it)."""
    if not memory:
        return x
    white = x.copy()
    white[1:] = (x[1:] - memory * x[:-1]) / (1.0 - memory)
    return white


def _innovations(x: Vector, cuts: list[int], memory: float) -> Vector:
    off = x - medians(x, cuts)
    return off[1:] - memory * off[:-1]
