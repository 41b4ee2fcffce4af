"""Of the cuts that a segmentation proposes, keep those that hold up, and put each where it most likely is.

For noise that does not remember; where it does, `autocorrelated_changes.py` does both at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchhouse.analysis.change_position import Place, place

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_MULTISCALE, _LONG = 2.0, 50  # a short stretch has more places to be found in by chance
_LEAST_Z, _USUAL = 3.9, 200
_Z_A_DECADE = 0.4
_SMALL, _SMALL_EXTRA, _LARGE_ONES = 0.6, 1.2, 4
_SWEEPS = 2


class _Cuts:
    """Cuts with what speaks for each; dropping one asks its neighbours anew."""

    def __init__(self, x: Vector, cuts: list[int], error: float, shortest: int) -> None:
        self.x, self.cuts, self.error, self.shortest = x, list(cuts), error, shortest
        self.places = [self.look(at) for at in range(len(self.cuts))]
        self.scores = [self.score(at) for at in range(len(self.cuts))]

    def ends(self, at: int) -> tuple[int, int]:
        return self.cuts[at - 1] if at else 0, self.cuts[at + 1] if at + 1 < len(self.cuts) else len(self.x)

    def look(self, at: int) -> Place:
        start, end = self.ends(at)
        return place(self.x, start, self.cuts[at], end, self.error, self.shortest)

    def score(self, at: int) -> float:
        start, end = self.ends(at)
        shortest = min(self.cuts[at] - start, end - self.cuts[at], _LONG)
        return math.sqrt(max(0.0, self.places[at].evidence - _MULTISCALE * math.log(_LONG / shortest)))

    def drop(self, at: int) -> None:
        for column in (self.cuts, self.places, self.scores):
            del column[at]
        for near in (at - 1, at):
            if 0 <= near < len(self.cuts):
                self.places[near] = self.look(near)
                self.scores[near] = self.score(near)


def prune(x: Vector, cuts: list[int], error: float, floor: float, shortest: int) -> list[int]:
    """Drop the weakest cut until each holds up; those far smaller than the rest must be clearer."""
    found = _Cuts(x, cuts, error, shortest)
    needed = _LEAST_Z + _Z_A_DECADE * math.log10(len(x) / _USUAL)
    while found.cuts:
        weakest = min(range(len(found.cuts)), key=found.scores.__getitem__)
        if found.scores[weakest] >= needed:
            margins = _margins(found, needed, floor)
            weakest = min(range(len(found.cuts)), key=margins.__getitem__)
            if margins[weakest] >= 0.0:
                break
        found.drop(weakest)
    for _ in range(_SWEEPS):
        for at in range(len(found.cuts)):
            found.cuts[at] = found.look(at).at
    return found.cuts


def _margins(found: _Cuts, needed: float, floor: float) -> list[float]:
    """By how much each cut is stronger than it must be."""
    sizes = [abs(place.size) for place in found.places]
    scores = [score if size >= floor else -math.inf for score, size in zip(found.scores, sizes, strict=True)]
    strong = sorted(size for size, score in zip(sizes, scores, strict=True) if score >= needed)
    small = strong[-1 - len(strong) // _LARGE_ONES] * _SMALL if strong else 0.0
    return [score - needed - (_SMALL_EXTRA if size < small else 0.0) for size, score in zip(sizes, scores, strict=True)]
