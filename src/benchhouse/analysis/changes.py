"""Find where the level of a history changed, and say by how much and how sure that is.

A history is one number a run, in order. Its noise may have far outliers and may remember: a run after a slow one tends
to be slow too. Both make ordinary tests cry wolf. `docs/design/change-points.md` says how this was chosen and measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchhouse.analysis.summary import finite

FLOOR = 0.01  # smaller relative changes are not reported
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Change:
    """A new level that begins at `index`; `before` and `after` are the levels, far values counted as near ones."""

    index: int
    before: float
    after: float
    change: float | None  # (after - before) / |before|, a fraction; None where the level before is zero
    low: float | None
    high: float | None
    """95% interval of `change`; of those that were found, so a little too far from zero (the strong ones are found)."""
    z: float  # standard errors between the two levels


@dataclass(frozen=True, slots=True)
class Noise:
    """What a history is like between its changes."""

    memory: float  # correlation of a run's noise with that of the run before; 0 where there is no evidence of any
    raw_memory: float  # the same as it was estimated, evidence or not
    spread: float  # standard deviation, relative to the level where all values are positive
    full_spread: float  # the same with outliers counted in full
    error: float
    """Standard deviation that independent runs would need for means as uncertain as these are: memory counted."""


@dataclass(frozen=True, slots=True)
class History:
    """The changes of a history, and its noise."""

    n: int
    changes: tuple[Change, ...]
    noise: Noise | None  # None where there are too few runs to tell


def find_changes(values: Sequence[float], *, floor: float = FLOOR) -> History:
    """Where the level of `values` (one a run, oldest first) changed by `floor` or more; refuses NaN and infinity."""
    import numpy as np

    from benchhouse.analysis import level_search, segments  # here, as they import numpy

    raw = np.array(finite(values), dtype=float)
    if len(raw) < 2 * level_search.SHORTEST:
        return History(len(raw), (), None)
    logs = bool((raw > 0.0).all())  # then noise and steps are as large, in percent, at every level
    unit = 1.0 if logs else segments.median(np.abs(raw)) or float(np.abs(raw).max()) or 1.0
    x = np.log(raw) if logs else raw / unit
    result = level_search.search(x, max(floor / level_search.SHORTEST, 1e-9), math.log1p(floor) if logs else floor)
    calm, cuts = result.calm, result.cuts
    around = segments.levels(calm, cuts)
    noise = Noise(
        memory=result.memory,
        raw_memory=level_search.residual_memory(calm, cuts),
        spread=float(np.std(calm - around)),
        full_spread=float(np.std(x - around)),
        error=result.sd,
    )
    edges, levels = [0, *cuts, len(x)], segments.means(calm, cuts)
    changes = []
    for start, cut, end, before, after in zip(edges, cuts, edges[2:], levels, levels[1:], strict=False):
        error = result.sd * math.sqrt(1.0 / (cut - start) + 1.0 / (end - cut))
        changes.append(_change(cut, before, after, error, None if logs else unit))
    return History(len(raw), tuple(changes), noise)


def _change(cut: int, before: float, after: float, error: float, unit: float | None) -> Change:
    """Of levels that are logarithms, or in this `unit`."""
    step = after - before
    z, parts = abs(step) / error, (step, step - _Z95 * error, step + _Z95 * error)
    if unit is None:
        change, low, high = map(math.expm1, parts)
        return Change(cut, math.exp(before), math.exp(after), change, low, high, z)
    if not before:
        return Change(cut, 0.0, after * unit, None, None, None, z)
    change, low, high = (part / abs(before) for part in parts)
    return Change(cut, before * unit, after * unit, change, low, high, z)
