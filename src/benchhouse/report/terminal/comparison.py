"""B against A in a terminal: one line per number, with interval, effect size, and verdict."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from benchhouse.report.pull_request import by_weight, verdict_sentence
from benchhouse.report.terminal import screen
from benchhouse.report.terminal.points import SHAKY
from benchhouse.results.numbers import number, titled
from benchhouse.schema.quoting import shortened

if TYPE_CHECKING:
    from benchhouse.results.comparison import ComparisonTable, PointRow

_MOST_ROWS = 40
_MOST_NAMES = 8
COLUMNS = ("point", "metric", "A", "B", "change, interval", "effect g", "n", "verdict")


def show_comparison(compared: "ComparisonTable", selftest: str) -> None:
    """Print all rows if they fit a screen; otherwise those that weigh most, and the counts of all verdicts."""
    click.echo(f"A  {compared.a}\nB  {compared.b}")
    rows = compared.rows if len(compared.rows) <= _MOST_ROWS else by_weight(compared.rows)[:_MOST_ROWS]
    if rows:
        _show_rows(rows, several_points=compared.several_points)
    if more := len(compared.rows) - len(rows):
        verdicts = verdict_sentence(compared.rows)
        hint = "--metric NAME, a selector (RUN:key=value), --json or --markdown"
        screen.note(f"{verdicts}; and {more:,} more rows: {hint}")
    for line in [*comparison_notes(compared), selftest]:
        screen.note(line)


def comparison_cells(row: "PointRow") -> tuple[str, ...]:
    """Return the cells under all COLUMNS except the verdict."""
    means, n = (number(row.mean_a), number(row.mean_b)), f"{row.n_a}/{row.n_b}"
    return row.point, titled(row.name_marked, row.unit), *means, row.change_text, row.effect_text, n


def comparison_notes(compared: "ComparisonTable") -> list[str]:
    """Return the notes below the table."""
    notes = [SHAKY] if any(row.shaky for row in compared.rows) else []
    notes += [*compared.notes, *(f"differs: {item.dimension}: {item.a} | {item.b}" for item in compared.differences)]
    notes += [f"not compared: {'; '.join(compared.invalid_metrics)}"] if compared.invalid_metrics else []
    notes += [f"not compared: {', '.join(compared.unmatched_metrics)}"] if compared.unmatched_metrics else []
    sides = (("A", compared.only_a), ("B", compared.only_b))
    return notes + [f"only in {side}: {shortened(labels, _MOST_NAMES)}" for side, labels in sides if labels]


def _show_rows(rows: "Sequence[PointRow]", *, several_points: bool) -> None:
    if not (several_points and screen.console().width < screen.ROOMY):
        _table(rows, named=several_points)
        return
    for point in dict.fromkeys(row.point for row in rows):
        click.echo(f"\n{point}")
        _table([row for row in rows if row.point == point], named=False)


def _table(rows: "Sequence[PointRow]", *, named: bool) -> None:
    """Print one line per number; `named` adds the point of each."""
    first = 0 if named else 1
    screen.table(
        COLUMNS[first:],
        [(*comparison_cells(row), screen.verdict(row.verdict))[first:] for row in rows],
        right=("A", "B", "effect g"),
        whole=("metric", "A", "B", "effect g", "n", "verdict"),
        spare=("n", "effect g"),
    )
