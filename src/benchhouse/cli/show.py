"""Printing: tables and figures for people, JSON for programs; data on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


def console(stderr: bool = False) -> "Console":
    """A rich console: colours only on a terminal and without NO_COLOR; as wide as need be when not on a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "10000"))
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def note(message: str) -> None:
    click.echo(message, err=True)


def as_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A plain table; `right` names the columns that hold numbers. What is far too wide becomes a list of records."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    texts = [["" if item is None else str(item) for item in row] for row in rows]
    for row in texts:
        drawn.add_row(*(Text(item) for item in row))
    screen = console()
    if screen.measure(drawn, options=screen.options.update(max_width=100_000)).maximum < 2 * screen.width:
        screen.print(drawn)
        return
    widest = max(len(column) for column in columns)
    for row in texts:
        lines = [f"{column:<{widest}}  {item}" for column, item in zip(columns, row, strict=True)]
        click.echo("\n".join([*lines, ""]))


def count(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def number(value: float | None, digits: int = 4) -> str:
    """A number with sensible digits: 0.000123, 12.35, 1 234 567."""
    if value is None:
        return "n/a"
    if value == 0:
        return "0"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.{digits}g}"


def outcomes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
