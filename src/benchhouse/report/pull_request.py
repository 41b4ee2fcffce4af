"""A comparison of two runs for a pull request: the verdict first, a compact table, and a chart as a file."""

from collections import Counter
from collections.abc import Sequence

from benchhouse.report.interval_chart import Bar, interval_chart
from benchhouse.report.markdown_text import code, folded, plain, table
from benchhouse.results.comparison import ComparisonTable, PointRow
from benchhouse.results.numbers import percent, plural, quantity
from benchhouse.schema.quoting import shortened, visible

_WEIGHTS = {"worse": 0, "better": 1}
_COLOURS = {"worse": "#d55e00", "better": "#009e73"}
_MOST_ROWS = 30
_MOST_NAMES = 8


def by_weight(rows: Sequence[PointRow]) -> list[PointRow]:
    """Return rows that got worse first, then those that got better; the largest relative change first in each group."""
    return sorted(rows, key=lambda row: (_WEIGHTS.get(row.verdict, 2), -abs(row.change or 0.0)))


def verdict_sentence(rows: Sequence[PointRow]) -> str:
    """Return a text such as `2 worse, 1 better, 9 no evidence of a difference`."""
    counts = Counter(row.verdict for row in rows)
    ordered = sorted(counts, key=lambda verdict: (_WEIGHTS.get(verdict, 2), -counts[verdict]))
    return ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in ordered) or "nothing to compare"


def comparison_markdown(compared: ComparisonTable) -> str:
    """Return GitHub-flavored Markdown. Both sides are named once; the table calls them A and B."""
    parts = [
        f"**B against A: {plain(verdict_sentence(compared.rows))}**",
        f"A: {code(compared.a)}  \nB: {code(compared.b)}",
        *(plain(note) for note in compared.notes),
    ]
    if compared.differences:
        listed = [[plain(item.dimension), plain(item.a), plain(item.b)] for item in compared.differences]
        parts.append(table(["what changed", "A", "B"], listed))
    rows = by_weight(compared.rows) if len(compared.rows) > _MOST_ROWS else compared.rows
    if rows:
        parts.append(_table(compared, rows[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        rest = _table(compared, rows[_MOST_ROWS:])
        parts.append(folded(f"{len(rows) - _MOST_ROWS:,} more", rest))
    if any(row.shaky for row in compared.rows):
        parts.append("\\~ a percentile from too few samples within a trial to be trusted.")
    for side, labels in (("A", compared.only_a), ("B", compared.only_b)):
        if labels:
            parts.append(f"Only in {side}: {plain(shortened(labels, _MOST_NAMES))}.")
    if compared.invalid_metrics:
        parts.append(f"Not compared: {plain('; '.join(compared.invalid_metrics))}.")
    if compared.unmatched_metrics:
        parts.append(f"Not compared: {plain(', '.join(compared.unmatched_metrics))}.")
    return visible("\n\n".join(parts) + "\n")


def _table(compared: ComparisonTable, rows: Sequence[PointRow]) -> str:
    several = compared.several_points
    lines = [
        [
            *([plain(row.point)] if several else []),
            plain(row.name_marked),
            quantity(row.mean_a, plain(row.unit)),
            quantity(row.mean_b, plain(row.unit)),
            plain(row.change_text),
            f"{row.n_a}, {row.n_b}",
            row.verdict,
        ]
        for row in rows
    ]
    heads = [*(["point"] if several else []), "metric", "A", "B", f"change ({compared.confidence * 100:g}% interval)"]
    return table([*heads, "n", "verdict"], lines, range(1 + several, 4 + several))


def comparison_svg(compared: ComparisonTable, *, inside: bool = False) -> str:
    """Return a chart of relative changes with their intervals, the worse ones on top; rows without one are left out.

    If `inside` a page, the style sheet of that page applies.
    """
    rows = [row for row in by_weight(compared.rows) if row.change is not None]
    bars = [
        Bar(
            label=" ".join(filter(None, [row.point if compared.several_points else "", row.name])),
            value=100.0 * (row.change or 0.0),
            low=100.0 * row.change_interval[0] if row.change_interval else None,
            high=100.0 * row.change_interval[1] if row.change_interval else None,
            text=percent(row.change),
            colour=_COLOURS.get(row.verdict, "#5f6b76"),
        )
        for row in rows[:_MOST_ROWS]
    ]
    left_out = len(compared.rows) - len(bars)
    more = f"; {left_out:,} more not drawn" if left_out else ""
    more += f"; {plural(len(compared.invalid_metrics), 'figure')} INVALID" if compared.invalid_metrics else ""
    title = f"B against A: {verdict_sentence(compared.rows)}{more}"
    axis = f"change in %, with the {compared.confidence * 100:g}% interval"
    return interval_chart(title, axis, bars, zero=True, inside=inside)
