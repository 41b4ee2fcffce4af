"""Find where the level of a history changed, by how much, and how certain that is.

A history is one number per run, in order. Its noise may have far outliers and may be autocorrelated: a run after a slow
one tends to be slow too. Both make ordinary tests raise false alarms. `docs/design/change-points.md` explains how this
method was chosen and measured.
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
    """A new level that begins at `index`; `before` and `after` are the levels, with far values counted as near ones."""

    index: int
    before: float
    after: float
    change: float | None  # (after - before) / |before|, a fraction; None if the level before is zero
    low: float | None
    high: float | None
    """95% interval of `change`. It holds for changes that were found, so it is slightly too far from zero, because
    strong changes are found more often.
    """
    z: float  # standard errors between the two levels


@dataclass(frozen=True, slots=True)
class Drift:
    """A slow change, along a straight line from the run at `start` to the one at `end - 1`."""

    start: int
    end: int
    before: float  # the line at its first run
    after: float  # the line at its last run
    change: float | None  # (after - before) / |before|, a fraction; None if it begins at zero
    low: float | None
    high: float | None
    """95% interval of `change`."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a history between its changes."""

    memory: float  # correlation of a run's noise with that of the previous run; 0 if there is no evidence of any
    raw_memory: float  # the estimate of `memory`, with or without evidence
    spread: float  # standard deviation, relative to the level if all values are positive
    full_spread: float  # `spread` with outliers counted in full
    error: float
    """Standard deviation that independent runs would need for means with this uncertainty; includes the effect of
    memory.
    """


@dataclass(frozen=True, slots=True)
class ChangeHistory:
    """The changes of a history, and its noise."""

    n: int
    changes: tuple[LevelShift, ...]
    noise: Noise | None  # None if there are too few runs to estimate it
    drifts: tuple[Drift, ...] = ()


def find_changes(values: Sequence[float], *, floor: float = FLOOR) -> ChangeHistory:
    """Find where the level of `values` (one per run, oldest first) changed by `floor` or more, at once or slowly. Raise
    ValueError for NaN and infinity.
    """
    import numpy as np

    from benchhouse.analysis import drifts, level_search, segments  # here because they import numpy

    raw = np.array(finite(values), dtype=float)
    if len(raw) < 2 * level_search.SHORTEST:
        return ChangeHistory(len(raw), (), None)
    logs = bool((raw > 0.0).all())  # then noise and steps are about equal, in percent, at every level
    unit = 1.0 if logs else segments.median(np.abs(raw)) or float(np.abs(raw).max()) or 1.0
    x = np.log(raw) if logs else raw / unit
    least, smallest = max(floor / level_search.SHORTEST, 1e-9), math.log1p(floor) if logs else floor
    result = level_search.search(x, least, smallest)
    calm, sd, memory = result.calm, result.sd, result.memory
    pieces = drifts.fit_pieces(calm, result.cuts, sd, smallest)
    off = drifts.residuals(calm, pieces)
    if memory and any(piece.slope for piece in pieces):
        if level_search.residual_memory(off, len(pieces), least) > level_search.least_memory(len(x)):
            pieces = drifts.fit_levels(calm, result.cuts)  # autocorrelated noise sometimes looks like a drift
            off = drifts.residuals(calm, pieces)
        else:  # a drift that was cut into levels looks like autocorrelated noise
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
    """The scale of levels: logarithms (`unit` is None), or multiples of `unit`."""

    unit: float | None

    def compare(
        self, before: float, after: float, error: float
    ) -> tuple[float, float, float | None, float | None, float | None]:
        """Return both levels in the unit of the metric, and their relative change with its 95% interval."""
        step = after - before
        parts = step, step - _Z95 * error, step + _Z95 * error
        if self.unit is None:
            change, low, high = map(math.expm1, parts)
            return math.exp(before), math.exp(after), change, low, high
        if not before:
            return 0.0, after * self.unit, None, None, None
        change, low, high = (part / abs(before) for part in parts)
        return before * self.unit, after * self.unit, change, low, high
