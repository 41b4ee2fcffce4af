"""Metrics that repeat each other count once: in a closed loop `ttft_sent` is `ttft` under another name."""

from collections.abc import Iterable
from dataclasses import replace

from benchhouse.analysis.ranking import holm
from benchhouse.results.comparison import ComparisonTable, PointRow

_SAME = 0.01  # of the value, on both sides: what is left of a request's wait where a client waits for its answer


def count_once(table: ComparisonTable) -> ComparisonTable:
    """The table without rows that say what an earlier one of their point says, and with p-values for the others."""
    kept: list[PointRow] = []
    alike: dict[tuple[object, ...], list[PointRow]] = {}  # those that could say the same
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
