"""Metrics that duplicate each other count once: in a closed loop, `ttft_sent` is `ttft` under another name."""

from collections.abc import Iterable
from dataclasses import replace

from benchhouse.analysis.ranking import holm
from benchhouse.results.comparison import ComparisonTable, PointRow

# relative to the value, on both sides: the remaining wait of a request if a client waits for its response
_SAME = 0.01


def count_once(table: ComparisonTable) -> ComparisonTable:
    """Return the table without rows that duplicate an earlier one of their point, with new p-values for the others."""
    kept: list[PointRow] = []
    alike: dict[tuple[object, ...], list[PointRow]] = {}  # rows that may be duplicates of each other
    told: dict[str, None] = {}
    for row in table.rows:
        about = row.point, row.stat, row.unit, row.direction, tuple(row.trials_a), tuple(row.trials_b)
        if first := _is_duplicate(row, alike.setdefault(about, [])):
            told[f"{row.metric} has the values of {first.metric}, and counts once with it."] = None
        else:
            kept.append(row)
            alike[about].append(row)
    if not told:
        return table
    adjusted = holm({str(at): row.p_value for at, row in enumerate(kept) if row.p_value is not None})
    rows = [replace(row, p_adjusted=adjusted.get(str(at))) for at, row in enumerate(kept)]
    return replace(table, rows=rows, notes=[*table.notes, *told])


def _is_duplicate(row: PointRow, rows: Iterable[PointRow]) -> PointRow | None:
    def same(x: float, y: float) -> bool:
        return abs(x - y) <= _SAME * max(abs(x), abs(y))

    return next(
        (
            other
            for other in rows
            if other.metric != row.metric and same(other.mean_a, row.mean_a) and same(other.mean_b, row.mean_b)
        ),
        None,
    )
