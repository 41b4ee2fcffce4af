"""B against A in a terminal: one line a number, with interval, effect size and verdict."""

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

_ROOMY = 110
_SHORT = {"no evidence of a difference": "no evidence", "too few repetitions": "too few"}
_MOST_ROWS = 40
_MOST_NAMES = 8


def show_comparison(compared: "ComparisonTable", selftest: str) -> None:
    """All rows where they fit a screen; of more, those that weigh most, and all verdicts counted."""
    click.echo(f"A  {compared.a}\nB  {compared.b}")
    rows = compared.rows if len(compared.rows) <= _MOST_ROWS else by_weight(compared.rows)[:_MOST_ROWS]
    _show_rows(rows, several_points=compared.several_points)
    if more := len(compared.rows) - len(rows):
        verdicts = verdict_sentence(compared.rows)
        hint = "--metric NAME, a selector (RUN:key=value), --json or --markdown"
        screen.note(f"{verdicts}; and {more:,} more rows: {hint}")
    _show_notes(compared)
    screen.note(selftest)


def _show_rows(rows: "Sequence[PointRow]", *, several_points: bool) -> None:
    narrow = screen.console().width < _ROOMY
    if not (narrow and several_points):
        _table(rows, narrow=narrow, named=several_points)
        return
    points: dict[str, list[PointRow]] = {}
    for row in rows:
        points.setdefault(row.point, []).append(row)
    for point, own in points.items():
        click.echo(f"\n{point}")
        _table(own, narrow=narrow, named=False)


def _table(rows: "Sequence[PointRow]", *, narrow: bool, named: bool) -> None:
    """One line a number; `named` says the point of each, and where it is `narrow` the verdict is shortened."""
    verdicts = _SHORT if narrow else {}
    cells = [
        (row.point, titled(row.name_marked, row.unit), number(row.mean_a), number(row.mean_b), row.change_text,
         row.effect_text, f"{row.n_a}/{row.n_b}", verdicts.get(row.verdict, row.verdict))
        for row in rows
    ]  # fmt: skip
    columns = ("point", "metric", "A", "B", "change, interval", "effect g", "n", "verdict")
    first = 0 if named else 1
    screen.table(
        columns[first:],
        [line[first:] for line in cells],
        right=("A", "B", "effect g"),
        whole=("metric", "A", "B", "effect g", "n", "verdict"),
        spare=("n", "effect g"),
    )


def _show_notes(compared: "ComparisonTable") -> None:
    if any(row.shaky for row in compared.rows):
        screen.note(SHAKY)
    for line in compared.notes:
        screen.note(line)
    for difference in compared.differences:
        screen.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    if compared.unmatched_metrics:
        screen.note(f"not compared: {', '.join(compared.unmatched_metrics)}")
    for side, only in (("A", compared.only_a), ("B", compared.only_b)):
        if only:
            screen.note(f"only in {side}: {shortened(only, _MOST_NAMES)}")
