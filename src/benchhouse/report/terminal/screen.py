"""Printing: tables and values for people, JSON for programs; data on stdout, everything else on stderr."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from benchhouse.schema.json_text import finite
from benchhouse.schema.quoting import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from benchhouse.runs.execution import CollectionReport
    from benchhouse.runs.status import RunStatus

_WRAPPED = 14  # the minimum width of a column that wraps next to others that don't
_WORD = 32  # the longest word that is not broken there
_GAP = 3
_NO_END = 10_000
_UNBROKEN: Any = {"break_long_words": False, "break_on_hyphens": False}
_THIN, _HELD = "\u2009", "\ue000"  # between the thousands of a number, where a cell must not be broken; rich would
_QUOTED = re.compile(r" *\d* \| ")
ROOMY = 110
_SHORT_VERDICTS = {
    "no evidence of a difference": "no evidence",
    "no evidence of a difference from the best": "no evidence",
    "not told from the best": "not told apart",
    "tied for best": "tied",
    "too few repetitions": "too few",
    "within error bounds": "within bounds",
    "within error bounds of the best": "within bounds",
    "worse as a pair, not after correction": "worse as a pair",
    "worse than the best": "worse",
}


def console(stderr: bool = False) -> "Console":
    """Return a rich console, with colors only on a terminal and without NO_COLOR; of unlimited width if not on a
    terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _columns() or _NO_END
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def _columns() -> int:
    """Return $COLUMNS, or 0 if it is not a number."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() else 0


def note(message: str) -> None:
    click.echo(on_stderr(visible(message)), err=True)


def on_stderr(text: str) -> str:
    """Return text wrapped at spaces if a terminal would break it within a word; unchanged without a terminal."""
    return _fitted(text, sys.stderr)


def on_stdout(text: str) -> str:
    return _fitted(text, sys.stdout)


def _fitted(text: str, stream: TextIO) -> str:
    if not stream.isatty():
        return text
    width = _columns() or os.get_terminal_size(stream.fileno()).columns
    return "\n".join(_broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    """Return a wrapped line. A command after two spaces stays whole for copying, as does a quoted file line after
    `|`."""
    body = line.lstrip(" ")
    if len(line) <= width or width < _WRAPPED or _QUOTED.match(line):
        return line
    prose, gap, command = body.partition("  ")
    indent = " " * (len(line) - len(body))
    broken = textwrap.fill(
        prose + gap + command.replace(" ", "\0"),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        **_UNBROKEN,
    )
    return broken.replace("\0", " ")


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print `name  value` per line; a long value continues below itself."""
    pairs = [(visible(name), visible(value)) for name, value in pairs]
    widest = max(len(name) for name, _ in pairs)
    width = _columns() or (os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else _NO_END)
    for name, value in pairs:
        lines = textwrap.wrap(value, max(width - widest - 2, _WRAPPED), **_UNBROKEN) or [""]
        click.echo(f"\n{'':<{widest}}  ".join([f"{name:<{widest}}  {lines[0]}", *lines[1:]]))


def screen_lines() -> int:
    """Return the lines of the terminal; a large number without a terminal."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else 1000


def as_json(value: Any) -> None:
    click.echo(json.dumps(finite(value), indent=2, default=str, ensure_ascii=False, allow_nan=False))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> list[str]:
    """Print a plain table. If it is far too wide for the screen, or can't be wrapped to fit it, it becomes a list of
    records.

    `right` names the columns that hold numbers and `whole` those that are never wrapped. If there is no room, columns
    in `spare` are left out, the last of them first; return those that were left out.
    """
    columns = [visible(column) for column in columns]
    texts = [["" if item is None else visible(str(item)) for item in row] for row in rows]
    screen = console()
    room = screen.options.update(max_width=100_000)
    dropped: list[str] = []
    while True:
        kept = [at for at, column in enumerate(columns) if column not in dropped]
        cells = [[row[at] for at in kept] for row in texts]
        drawn = _drawn([columns[at] for at in kept], cells, right, whole, spare)
        needs = screen.measure(drawn, options=room)
        # The minimum width, with words broken that are too long for their column.
        least = sum((column.min_width or 0) + _GAP for column in drawn.columns) - _GAP if whole else needs.minimum
        if least <= screen.width or len(dropped) == len(spare):
            break
        dropped.append(spare[-1 - len(dropped)])
    if least <= screen.width if whole else needs.maximum < 2 * screen.width:
        with screen.capture() as printed:
            screen.print(drawn)
        click.echo(printed.get().replace(_HELD, _THIN), nl=False)
        return dropped
    for row in texts:
        facts(zip(columns, row, strict=True))
        click.echo()
    return []


def _drawn(
    columns: Sequence[str], rows: list[list[str]], right: Sequence[str], whole: Sequence[str], spare: Sequence[str]
) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, column in enumerate(columns):
        # rich would cut even unwrappable text rather than exceed the screen width; minimum widths prevent that.
        widest = max(cell_len(text) for text in [column, *(row[at] for row in rows)])
        # A column that wraps while others can be left out keeps its longest word: `n=4000000` in two pieces is another
        # number.
        longest = max((len(word) for row in rows for word in row[at].split()), default=0) if spare else 0
        narrowest = min(widest, max(_WRAPPED, min(longest, _WORD))) if whole else None
        drawn.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column in whole,
            min_width=widest if column in whole else narrowest,
        )
    for row in rows:
        drawn.add_row(*(Text(item.replace(_THIN, _HELD)) for item in row))
    return drawn


def verdict(words: str) -> str:
    """Return the text of a verdict, shortened if the screen is narrow."""
    return _SHORT_VERDICTS.get(words, words) if console().width < ROOMY else words


def count(number: int, noun: str) -> str:
    """Return a count such as `1 trial` or `2 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def outcomes(counts: Mapping[str, int]) -> str:
    from benchhouse.schema.trial import outcome_words

    return ", ".join(f"{count} {outcome_words(name)}" for name, count in sorted(counts.items())) or "none"


def unread_events(run: "RunStatus | CollectionReport") -> None:
    """Note that a newer version wrote to the run's ledger, so that more may have happened than is shown."""
    if run.unread_events:
        events = count(run.unread_events, "event")
        note(f"{run.run_id}: {events} of a newer version not read, more may have happened; look with that version")
