"""Reports of large sweeps: which statistics they keep, and how the leading metrics spread over the axes."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchhouse.analysis.axis_spread import axis_spreads, spread
from benchhouse.report.payload import axis_values, varying_axes
from benchhouse.results.content import AxisSpreadFacts, Number, Point, SpreadFacts
from benchhouse.results.numbers import headline_stats

LARGE = 250
"""Points. Beyond it nobody reads curve by curve: a report shows leaders and spread, and keeps leading statistics."""
_MOST_METRICS = 3

Row = Mapping[str, Any]


def pick_columns(rows: Sequence[Row]) -> tuple[list[tuple[str, str]] | None, int]:
    """From the metrics and stats that there are, those of a large sweep's report, and how many are left out.

    None for a sweep that is not large: its report has all. A metric that has none of the leading statistics keeps what
    it has.
    """
    if max((row["points"] for row in rows), default=0) <= LARGE:
        return None, 0
    stats: dict[str, list[str]] = {}
    for row in rows:
        stats.setdefault(row["metric"], []).append(row["stat"])
    kept = [(metric, stat) for metric, present in stats.items() for stat in headline_stats(present) or present]
    return kept, len(rows) - len(kept)


def first_metrics(columns: Sequence[Number]) -> list[Number]:
    """The first leading metrics, each by its first statistic: what a large sweep is ranked and summed up by."""
    leading = [column for column in columns if column.primary] or list(columns)
    return list({column.metric: column for column in reversed(leading)}.values())[::-1][:_MOST_METRICS]


def make_spreads(points: Sequence[Point], columns: Sequence[Number], several_runs: bool) -> list[SpreadFacts]:
    """Of the first leading metrics, each by its first statistic."""
    values = [axis_values(point, several_runs=several_runs) for point in points]
    names = [axis["name"] for axis in varying_axes(values)]
    placed = [{name: axes[name] for name in names if name in axes} for axes in values]
    return [_spread(points, placed, column) for column in first_metrics(columns)]


def _spread(points: Sequence[Point], placed: Sequence[Mapping[str, Any]], column: Number) -> SpreadFacts:
    numbers = [
        (axes, number.cell.value)
        for point, axes in zip(points, placed, strict=True)
        if (number := point.number(column.column))
    ]
    over_all = spread([value for _, value in numbers])
    metric, stat, unit = column.column
    return SpreadFacts(
        metric=metric,
        stat=stat,
        unit=unit,
        direction=column.direction,
        points=over_all.points,
        quartiles=[
            over_all.minimum, over_all.lower_quartile, over_all.median, over_all.upper_quartile, over_all.maximum,
        ],
        axes=[
            AxisSpreadFacts(
                axis=row.axis.removeprefix("@"),
                levels=row.levels,
                best=str(row.best),
                best_median=row.best_median,
                worst=str(row.worst),
                worst_median=row.worst_median,
                explained=row.explained,
            )
            for row in axis_spreads(numbers, column.direction)
        ],
    )  # fmt: skip
