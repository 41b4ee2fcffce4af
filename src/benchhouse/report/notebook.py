"""Answers as HTML for notebooks: tables and charts without scripts or styles of a page around them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from benchhouse.report.tags import join, tag
from benchhouse.results.numbers import number, spread_text, titled

if TYPE_CHECKING:
    from benchhouse.results.comparison import ComparisonTable
    from benchhouse.results.lineage import Trace
    from benchhouse.results.metric_history import MetricHistory
    from benchhouse.results.run_points import PointValue

MOST_ROWS = 50
_WIDTH, _HEIGHT, _EDGE = 640, 160, 34


def table_html(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = (), notes: Sequence[str] = ()
) -> str:
    """A table; of very many rows the first, with the number of those that are left out."""
    rows = list(rows)
    aligned = ["text-align:right" if column in right else "text-align:left" for column in columns]
    head = tag("tr", *(tag("th", column, style=style) for column, style in zip(columns, aligned, strict=True)))
    body = [
        tag(
            "tr",
            *(
                tag("td", "" if cell is None else str(cell), style=style)
                for cell, style in zip(row, aligned, strict=True)
            ),
        )
        for row in rows[:MOST_ROWS]
    ]
    if len(rows) > MOST_ROWS:
        notes = [f"and {len(rows) - MOST_ROWS} more rows", *notes]
    return join(tag("table", tag("thead", head), tag("tbody", *body)), *_notes(notes))


def _notes(notes: Iterable[str]) -> list[Markup]:
    return [tag("p", note, style="color:gray;margin:2px 0") for note in notes]


def points_html(points: "Sequence[PointValue]") -> str:
    """The headline numbers, one row a point and metric."""
    columns = ("point", "metric", "mean", "±", "n")
    rows = [
        (
            point.label,
            titled(point.metric if point.stat == "value" else f"{point.metric} {point.stat}", point.unit),
            number(point.mean, point.stdev),
            spread_text(point.mean, point.stdev),
            point.n,
        )
        for point in points
        if point.headline
    ]
    return table_html(columns, rows, right=("mean", "±", "n"))


def comparison_html(table: "ComparisonTable", selftest: str) -> str:
    """B against A, as `bench compare` prints it."""
    columns = ("point", "metric", "A", "B", "change, interval", "effect g", "n", "verdict")
    rows = [
        (row.point, titled(row.name_marked, row.unit), number(row.mean_a), number(row.mean_b), row.change_text,
         row.effect_text, f"{row.n_a}/{row.n_b}", row.verdict)
        for row in table.rows
    ]  # fmt: skip
    sides = tag("p", f"A  {table.a}", tag("br"), f"B  {table.b}")
    return join(sides, Markup(table_html(columns, rows, ("A", "B", "effect g"), [*table.notes, selftest])))


def history_html(history: "MetricHistory") -> str:
    """The values of all runs as a chart, with a line where a new level begins."""
    values = history.values
    low, high = min(values), max(values)
    span, step = (high - low) or 1.0, (_WIDTH - 2 * _EDGE) / max(1, len(values) - 1)
    places = {run.run_id: at for at, run in enumerate(history.runs)}

    def x(at: int) -> float:
        return round(_EDGE + at * step, 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _EDGE / 2 - (value - low) / span * (_HEIGHT - _EDGE), 1)

    changes = [x(places[change.run_after]) for change in history.changes]
    drawing = tag(
        "svg",
        *(tag("line", x1=str(at), x2=str(at), y1="0", y2=str(_HEIGHT), stroke="#d55e00") for at in changes),
        tag(
            "polyline",
            points=" ".join(f"{x(at)},{y(value)}" for at, value in enumerate(values)),
            fill="none",
            stroke="#0072b2",
        ),
        *(tag("circle", cx=str(x(at)), cy=str(y(value)), r="2.5", fill="#0072b2") for at, value in enumerate(values)),
        tag("text", number(high), x="0", y="10", font_size="10"),
        tag("text", number(low), x="0", y=str(_HEIGHT - 2), font_size="10"),
        width=str(_WIDTH),
        height=str(_HEIGHT),
        role="img",
    )
    return join(tag("p", f"{history.case.label}  {titled(history.name, history.unit)}"), drawing)


def trace_html(trace: "Trace") -> str:
    """The steps from a number to its bytes."""
    rows = [("✓" if step.ok else "✗", step.name, "; ".join(step.says)) for step in trace.steps]
    return table_html(("", "step", "what it says"), rows)
