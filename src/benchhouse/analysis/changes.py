"""Find where the level of a history changed, and say by how much and how sure that is.

A history is one number a run, in order. Its noise may have far outliers and may remember: a run after a slow one tends
to be slow too. Both make ordinary tests cry wolf. `docs/design/change-points.md` says how this was chosen and measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from benchhouse.analysis.summary import finite

FLOOR = 0.01  # smaller relative changes are not reported
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class LevelShift:
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
class Drift:
    """A slow change, along a straight line from the run at `start` to that at `end - 1`."""

    start: int
    end: int
    before: float  # the line at its first run
    after: float  # and at its last
    change: float | None  # (after - before) / |before|, a fraction; None where it begins at zero
    low: float | None
    high: float | None
    """95% interval of `change`."""


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
class ChangeHistory:
    """The changes of a history, and its noise."""

    n: int
    changes: tuple[LevelShift, ...]
    noise: Noise | None  # None where there are too few runs to tell
    drifts: tuple[Drift, ...] = ()


def find_changes(values: Sequence[float], *, floor: float = FLOOR) -> ChangeHistory:
    """Where the level of `values` (one a run, oldest first) changed by `floor` or more, at once or slowly; refuses NaN
    and infinity.
    """
    import numpy as np

    from benchhouse.analysis import drifts, level_search, segments  # here, as they import numpy

    raw = np.array(finite(values), dtype=float)
    if len(raw) < 2 * level_search.SHORTEST:
        return ChangeHistory(len(raw), (), None)
    logs = bool((raw > 0.0).all())  # then noise and steps are as large, in percent, at every level
    unit = 1.0 if logs else segments.median(np.abs(raw)) or float(np.abs(raw).max()) or 1.0
    x = np.log(raw) if logs else raw / unit
    least, smallest = max(floor / level_search.SHORTEST, 1e-9), math.log1p(floor) if logs else floor
    result = level_search.search(x, least, smallest)
    calm, sd, memory = result.calm, result.sd, result.memory
    pieces = drifts.fit_pieces(calm, result.cuts, sd, smallest)
    off = drifts.residuals(calm, pieces)
    if memory and any(piece.slope for piece in pieces):
        if level_search.residual_memory(off, len(pieces), least) > level_search.least_memory(len(x)):
            pieces = drifts.fit_levels(calm, result.cuts)  # noise that remembers looks like a drift now and then
            off = drifts.residuals(calm, pieces)
        else:  # and a drift that was cut into levels looks like noise that remembers
            sd, memory = max(float(np.std(off)), least), 0.0
    noise = Noise(
        memory=memory,
        raw_memory=level_search.residual_memory(off, len(pieces), least),
        spread=float(np.std(off)),
        full_spread=float(np.std(off + x - calm)),
        error=sd,
    )
    scale = _Scale(None if logs else unit)
    changes, slow = [], []
    for before, after in pairwise(pieces):
        if drifts.is_step(before, after, sd, smallest):
            error = sd * math.sqrt(1.0 / before.known + 1.0 / after.known)
            parts = scale.compare(before.last, after.first, error)
            changes.append(LevelShift(after.start, *parts, abs(after.first - before.last) / error))
    for piece in pieces:
        if piece.slope:
            error = sd * math.sqrt(12.0 / (piece.end - piece.start))
            slow.append(Drift(piece.start, piece.end, *scale.compare(piece.first, piece.last, error)))
    return ChangeHistory(len(raw), tuple(changes), noise, tuple(slow))


class _Scale(NamedTuple):
    """Levels are logarithms, or in this unit."""

    unit: float | None

    def compare(
        self, before: float, after: float, error: float
    ) -> tuple[float, float, float | None, float | None, float | None]:
        """Both levels as they were measured, and their relative difference with its 95% interval."""
        step = after - before
        parts = step, step - _Z95 * error, step + _Z95 * error
        if self.unit is None:
            change, low, high = map(math.expm1, parts)
            return math.exp(before), math.exp(after), change, low, high
        if not before:
            return 0.0, after * self.unit, None, None, None
        change, low, high = (part / abs(before) for part in parts)
        return before * self.unit, after * self.unit, change, low, high
