"""How a number spreads over the points of a sweep, and which axis affects it most."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from benchhouse.analysis.summary import quantile

Level = str | int | float


@dataclass(frozen=True, slots=True)
class Quartiles:
    """Quartiles of one number over all points."""

    points: int
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float


@dataclass(frozen=True, slots=True)
class AxisSpread:
    """The effect of one axis on a number, from the median over all points at each of its values."""

    axis: str
    levels: int  # values of the axis that have a point
    best: Level
    best_median: float
    worst: Level
    worst_median: float
    explained: float
    """Share of the variance over points that the means at its values explain, 0 to 1: epsilon squared, which is
    adjusted for the number of values, because an axis with many values fits any noise.
    """


def spread(values: Sequence[float]) -> Quartiles:
    """Return quartiles by linear interpolation (Hyndman and Fan's type 7). Raise ValueError if `values` is empty."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, no spread")
    return Quartiles(len(ordered), *(quantile(ordered, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)))


def axis_spreads(
    points: Sequence[tuple[Mapping[str, Any], float]], direction: Literal["higher", "lower"] | None
) -> list[AxisSpread]:
    """Return the spread of each axis with at least two values, the one that explains most first.

    Axes that explain the same keep their order. An axis with a different value at every point carries no information
    and is left out. Without a direction, `best` is the highest.
    """
    total = _sum_of_squares([value for _, value in points])
    spreads = []
    for axis in dict.fromkeys(name for axes, _ in points for name in axes):
        groups: dict[Level, list[float]] = {}
        for axes, value in points:
            if axis in axes:
                groups.setdefault(_level(axes[axis]), []).append(value)
        if len(groups) < 2 or len(groups) == len(points):
            continue
        medians = {level: median(values) for level, values in groups.items()}
        ordered = sorted(medians, key=lambda level: medians[level], reverse=direction != "lower")
        inside = sum(_sum_of_squares(values) for values in groups.values())
        covered = sum(map(len, groups.values())) == len(points)
        free = len(points) - len(groups)
        known = total > 0.0 and covered and free > 0
        explained = max(0.0, 1.0 - (inside / free) / (total / (len(points) - 1))) if known else 0.0
        best, worst = ordered[0], ordered[-1]
        spreads.append(AxisSpread(axis, len(groups), best, medians[best], worst, medians[worst], explained))
    return sorted(spreads, key=lambda row: -row.explained)


def _sum_of_squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _level(value: Any) -> Level:
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else str(value)
