"""Answers as HTML for notebooks: tables and charts without scripts or styles of a page."""

import contextlib
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from benchhouse.report.history_chart import history_chart
from benchhouse.report.tags import join, tag
from benchhouse.report.terminal.comparison import COLUMNS, comparison_cells, comparison_notes
from benchhouse.report.terminal.points import SHAKY, grid
from benchhouse.results.numbers import plural, titled

if TYPE_CHECKING:
    from benchhouse.results.comparison import ComparisonTable
    from benchhouse.results.history import Watched
    from benchhouse.results.lineage import LineageStep, LineageTrace
    from benchhouse.results.run_points import PointValue, TriedPoint

MOST_ROWS = 50
_VERDICTS = {"worse": "#c4500a", "better": "#00795a"}
_CELL = "white-space:nowrap;vertical-align:top;text-align:"


def table_html(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = (), notes: Sequence[str] = ()
) -> Markup:
    """Return a table, with a head only if a column has a name; beyond MOST_ROWS, rows are left out and counted."""
    rows = list(rows)
    aligned = [_CELL + ("right" if column in right else "left") for column in columns]
    head = tag("tr", *(tag("th", column, style=style) for column, style in zip(columns, aligned, strict=True)))
    body = [
        tag("tr", *(tag("td", _text(cell), style=style) for cell, style in zip(row, aligned, strict=True)))
        for row in rows[:MOST_ROWS]
    ]
    if len(rows) > MOST_ROWS:
        notes = [f"and {len(rows) - MOST_ROWS:,} more rows", *notes]
    table = tag("table", tag("thead", head) if any(columns) else None, tag("tbody", *body))
    return join(tag("div", table, style="overflow-x:auto"), *_notes(notes))


def _text(cell: Any) -> str:
    """Return a cell's text; markup stays markup."""
    return "" if cell is None else cell if isinstance(cell, str) else str(cell)


def _notes(notes: Iterable[str]) -> list[Markup]:
    return [tag("div", note, style="color:gray;margin:2px 0") for note in notes]


def rows_html(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return the rows of a query as a table, with numbers aligned right."""
    numeric = [
        column
        for at, column in enumerate(columns)
        if any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in rows)
    ]
    return table_html(columns, rows, numeric)


def text_html(show: Callable[[], None]) -> str:
    """Return what `show` prints in a terminal, unchanged: data first, then notes."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        show()
    notes = [line for line in err.getvalue().splitlines() if line]
    style = "white-space:pre;overflow-x:auto;line-height:1.3"
    return join(tag("pre", out.getvalue().strip("\n"), style=style), *_notes(notes))


def points_html(points: "Sequence[PointValue]", tried: "Sequence[TriedPoint]" = ()) -> str:
    """Return a table with one row per point and one column per metric, as `bench run` prints it."""
    table = grid(points, tried)
    names = [table.count_title, *table.columns.values()]
    shown = [row[column] for row in table.cells.values() for column in table.columns if column in row]
    notes = [SHAKY] if any(point.shaky for point in shown) else []
    return table_html(["point", *names], table.rows(), right=names, notes=notes)


def comparison_html(table: "ComparisonTable", selftest: str) -> str:
    """Return B against A, as `bench compare` prints it; points are named if there are several."""
    first = 0 if table.several_points else 1
    rows = [(*comparison_cells(row), _verdict(row.verdict))[first:] for row in table.rows]
    sides = tag("div", tag("b", "A"), f" {table.a}", tag("br"), tag("b", "B"), f" {table.b}")
    notes = [*comparison_notes(table), selftest]
    return join(sides, table_html(COLUMNS[first:], rows, ("A", "B", "effect g"), notes))


def _verdict(verdict: str) -> Markup:
    colour = _VERDICTS.get(verdict)
    return tag("span", verdict, style=f"color:{colour};font-weight:bold" if colour else None)


def history_html(watched: "Watched") -> str:
    """Return the values of all runs as a chart, with a line where a new level begins, and the findings in words."""
    history = watched.history
    drawing = tag("div", history_chart(watched), style="overflow-x:auto")
    runs = f" {titled(history.name, history.unit)}, {plural(len(history.runs), 'run')}"
    lines = [f"{change.verdict} from {change.run_after} on" for change in history.changes]
    lines += [drift.sentence for drift in history.drifts]
    notes = [*(lines or ["no change of level was found"]), *history.notes, watched.note]
    return join(tag("div", tag("b", history.case.label), runs), drawing, *_notes(filter(None, notes)))


def trace_html(trace: "LineageTrace") -> str:
    """Return the steps from a number to its bytes; the details of each step open with a click."""
    rows = [("✓" if step.ok else "✗", step.name, _step(step)) for step in trace.steps]
    last = "every step holds" if trace.ok else "the lineage is broken: see ✗ above"
    return table_html(("", "", ""), rows, notes=[last])


def _step(step: "LineageStep") -> Markup:
    style = "white-space:pre-wrap;overflow-wrap:anywhere;text-align:left"
    first, *rest = step.says or [""]
    if not rest:
        return tag("div", first, style=style)
    return tag("details", tag("summary", first, style=style), *(tag("div", line, style=style) for line in rest))
