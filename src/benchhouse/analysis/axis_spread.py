"""How a number spreads over the points of a sweep, and which axis moves it most."""

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
    """What one axis does to a number: the median over all points at each of its values, summed up."""

    axis: str
    levels: int  # values of the axis that have a point
    best: Level
    best_median: float
    worst: Level
    worst_median: float
    explained: float
    """Share of the variance over points that the means at its values account for, 0 to 1: epsilon squared, which is
    adjusted for the number of values, since an axis of many values follows any noise."""


def spread(values: Sequence[float]) -> Quartiles:
    """Quartiles by linear interpolation (Hyndman and Fan's type 7). Raises ValueError where there is no value."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, no spread")
    return Quartiles(len(ordered), *(quantile(ordered, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)))


def axis_spreads(
    points: Sequence[tuple[Mapping[str, Any], float]], direction: Literal["higher", "lower"] | None
) -> list[AxisSpread]:
    """For each axis with two values or more, the one that explains most first; without a direction, higher is `best`.

    The order is that of the axes where two explain the same. Axes of which every point has a value of its own say
    nothing and are left out.
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
