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
    """A rich console: colours only on a terminal and without NO_COLOR; wide when not on a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "160"))
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def note(message: str) -> None:
    click.echo(message, err=True)


def as_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
    """A plain table; `right` names the columns that hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(item if isinstance(item, Text) else Text("" if item is None else str(item)) for item in row))
    console().print(drawn)


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
