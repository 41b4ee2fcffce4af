"""Distinguish slow drifts from steps: a drift is a straight line that fits a stretch better than the levels it was cut
into.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchhouse.analysis.segments import Vector, means

# standard errors from level, for a drift that was not cut: each stretch is a chance for one
_LEAST_Z = 4.5
# Variances by which a line may fit worse than one step, and the same for each further step. A part of a history, or a
# short one, must fit better: if there are steps, another step is likelier than a drift.
_WHOLE, _PART, _MORE_STEPS = 3.0, -8.0, 6.0
_LONG = 100
_SHORTEST = 5
_JUMP_Z = 3.0  # between a drift and a level, a step with fewer standard errors than this does not count


class Piece(NamedTuple):
    """A stretch and the line that fits it; the slope of a level is zero."""

    start: int
    end: int
    first: float  # the line at its first run
    slope: float  # per run

    @property
    def last(self) -> float:
        return self.first + self.slope * (self.end - self.start - 1)

    @property
    def flat(self) -> "Piece":
        """The level that replaces this line."""
        return self._replace(first=(self.first + self.last) / 2.0, slope=0.0)

    @property
    def known(self) -> float:
        """Number of runs that determine its ends: a quarter of all for a line, all for a level."""
        return (self.end - self.start) / (4.0 if self.slope else 1.0)


class _Sums:
    """Sums of squares about the line, or about the level, of any stretch."""

    def __init__(self, x: Vector) -> None:
        self.centre = float(x.mean())
        y, t = x - self.centre, np.arange(len(x))
        self.sums = [np.concatenate([[0.0], np.cumsum(column)]).tolist() for column in (y, y * t, y * y)]

    def fit(self, start: int, end: int) -> tuple[Piece, float, float]:
        """Return the line, the squares about the level, and how many fewer there are about the line."""
        total, moment, squares = (column[end] - column[start] for column in self.sums)
        n = end - start
        middle = (start + end - 1) / 2.0
        spread = n * (n * n - 1) / 12.0
        slope = (moment - middle * total) / spread
        first = self.centre + total / n - slope * (n - 1) / 2.0
        return Piece(start, end, first, slope), squares - total * total / n, slope * slope * spread


def fit_pieces(x: Vector, cuts: list[int], error: float, floor: float) -> list[Piece]:
    """Return the levels between `cuts`, or lines in place of those that rise or fall by `floor` or more like a line.

    `error` is the standard deviation that independent runs would need for means with this uncertainty.
    """
    pieces, sums = fit_levels(x, cuts), _Sums(x)
    levels = [piece.first for piece in pieces]
    level_squares = [sums.fit(piece.start, piece.end)[1] for piece in pieces]
    options = []
    for first in range(len(levels)):
        for last in range(first, len(levels)):
            if last - first > 1 and (levels[last] > levels[last - 1]) != (levels[first + 1] > levels[first]):
                break
            line, squares, gained = sums.fit(pieces[first].start, pieces[last].end)
            one_step = _WHOLE if line.end - line.start == len(x) >= _LONG else _PART
            simpler = one_step + _MORE_STEPS * (last - first - 1) if last > first else -(_LEAST_Z**2)
            gain = sum(level_squares[first : last + 1]) - (squares - gained) + simpler * error * error
            if gain > 0.0 and abs(line.last - line.first) >= floor:
                options.append((gain, first, last, line))
    taken: dict[int, tuple[int, Piece]] = {}
    for _, first, last, line in sorted(options, reverse=True):
        if all(last < other or first > end for other, (end, _) in taken.items()):
            taken[first] = last, line
    joined, at = [], 0
    while at < len(pieces):
        last, piece = taken.get(at, (at, pieces[at]))
        joined.append(piece)
        at = last + 1
    for at, (before, after) in enumerate(pairwise(joined)):
        if bool(before.slope) != bool(after.slope):
            joined[at : at + 2] = _meet(sums, joined[at], after)
    return joined


def _meet(sums: _Sums, before: Piece, after: Piece) -> list[Piece]:
    """Return a level and a line (in either order) that meet where they fit best, because the drift was cut somewhere
    inside.
    """
    options = []
    for at in range(before.start + _SHORTEST, after.end - _SHORTEST + 1):
        (left, left_squares, left_gained), (right, right_squares, right_gained) = (
            sums.fit(before.start, at), sums.fit(at, after.end)
        )  # fmt: skip
        gained = left_gained if before.slope else right_gained
        options.append((left_squares + right_squares - gained, at, left, right))
    _, at, left, right = min(options)
    return [left if before.slope else left.flat, right if after.slope else right.flat]


def fit_levels(x: Vector, cuts: list[int]) -> list[Piece]:
    """Return only the levels."""
    edges = [0, *cuts, len(x)]
    return [Piece(start, end, level, 0.0) for (start, end), level in zip(pairwise(edges), means(x, cuts), strict=True)]


def residuals(x: Vector, pieces: list[Piece]) -> Vector:
    """Return the distance of each run from its line."""
    off: Vector = x - np.concatenate(
        [np.linspace(piece.first, piece.last, piece.end - piece.start) for piece in pieces]
    )
    return off


def is_step(before: Piece, after: Piece, error: float, floor: float) -> bool:
    """Whether there is a step between the pieces; between two levels that were cut, there always is."""
    if not before.slope and not after.slope:
        return True
    step = abs(after.first - before.last)
    return step >= max(floor, _JUMP_Z * error * math.sqrt(1.0 / before.known + 1.0 / after.known))
