"""Tell slow drifts from steps: where a straight line fits a stretch better than the levels it was cut into."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchhouse.analysis.segments import Vector, means

_LEAST_Z = 4.5  # standard errors from level of a drift that was not cut, as there may be one in each stretch
# Variances by which a line may fit worse than one step, and for each one more. A part of a history, or a short one,
# must fit better: where there are steps, another step is likelier than a drift.
_WHOLE, _PART, _MORE_STEPS = 3.0, -8.0, 6.0
_LONG = 100
_SHORTEST = 5
_JUMP_Z = 3.0  # where a drift meets a level, a step between them that is less sure than this is none


class Piece(NamedTuple):
    """A stretch and the line that fits it; of a level the slope is zero."""

    start: int
    end: int
    first: float  # the line at its first run
    slope: float  # a run

    @property
    def last(self) -> float:
        return self.first + self.slope * (self.end - self.start - 1)

    @property
    def flat(self) -> "Piece":
        """The level in its place."""
        return self._replace(first=(self.first + self.last) / 2.0, slope=0.0)

    @property
    def known(self) -> float:
        """As many runs as its ends are known by: those of a line are known by a quarter."""
        return (self.end - self.start) / (4.0 if self.slope else 1.0)


class _Sums:
    """Squares about the line, or about the level, of any stretch."""

    def __init__(self, x: Vector) -> None:
        self.centre = float(x.mean())
        y, t = x - self.centre, np.arange(len(x))
        self.sums = [np.concatenate([[0.0], np.cumsum(column)]).tolist() for column in (y, y * t, y * y)]

    def fit(self, start: int, end: int) -> tuple[Piece, float, float]:
        """The line, the squares about the level, and how many fewer there are about the line."""
        total, moment, squares = (column[end] - column[start] for column in self.sums)
        n = end - start
        middle = (start + end - 1) / 2.0
        spread = n * (n * n - 1) / 12.0
        slope = (moment - middle * total) / spread
        first = self.centre + total / n - slope * (n - 1) / 2.0
        return Piece(start, end, first, slope), squares - total * total / n, slope * slope * spread


def fit_pieces(x: Vector, cuts: list[int], error: float, floor: float) -> list[Piece]:
    """The levels between `cuts`, or lines in place of those that rise or fall like one, by `floor` or more.

    `error` is the deviation that independent runs would need for means as uncertain as these.
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
    """A level and a line, or a line and a level, that meet where they fit best: the drift was cut somewhere in it."""
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
    """The levels alone."""
    edges = [0, *cuts, len(x)]
    return [Piece(start, end, level, 0.0) for (start, end), level in zip(pairwise(edges), means(x, cuts), strict=True)]


def residuals(x: Vector, pieces: list[Piece]) -> Vector:
    """What each run is off its line by."""
    off: Vector = x - np.concatenate(
        [np.linspace(piece.first, piece.last, piece.end - piece.start) for piece in pieces]
    )
    return off


def is_step(before: Piece, after: Piece, error: float, floor: float) -> bool:
    """Whether there is a step between them; there is one between any two levels that were cut."""
    if not before.slope and not after.slope:
        return True
    step = abs(after.first - before.last)
    return step >= max(floor, _JUMP_Z * error * math.sqrt(1.0 / before.known + 1.0 / after.known))
