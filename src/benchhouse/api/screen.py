"""How the command line prints: tables, notes and progress on a terminal, the same that `.show()` uses in Python."""

from typing import Any

from benchhouse.api.answers import plain
from benchhouse.documents.problems import did_you_mean
from benchhouse.report.terminal import screen
from benchhouse.report.terminal.failures import failure_blocks, invalid_blocks
from benchhouse.report.terminal.history import history_arguments, next_for_baseline
from benchhouse.report.terminal.progress import RunProgress
from benchhouse.report.terminal.screen import (
    console,
    count,
    facts,
    note,
    on_stderr,
    on_stdout,
    outcomes,
    table,
    unread_events,
)
from benchhouse.results.numbers import number, percent, quantity, spread_text, titled

__all__ = [
    "RunProgress",
    "as_json",
    "console",
    "count",
    "did_you_mean",
    "duration",
    "facts",
    "failure_blocks",
    "history_arguments",
    "invalid_blocks",
    "next_for_baseline",
    "note",
    "number",
    "on_stderr",
    "on_stdout",
    "outcomes",
    "percent",
    "plain",
    "quantity",
    "size",
    "spread_text",
    "table",
    "titled",
    "unread_events",
]


def as_json(value: Any) -> None:
    """Print a value of the API, or plain data, as JSON."""
    screen.as_json(plain(value))


def size(count: float) -> str:
    """A number of bytes as `1.2 MiB`."""
    from benchhouse.schema.quantities import show_bytes  # a help comes without pydantic

    return show_bytes(count)


def duration(seconds: float) -> str:
    """A number of seconds as `1m30s`."""
    from benchhouse.schema.quantities import show_seconds

    return show_seconds(seconds)
