"""How the command line prints tables, notes, and progress on a terminal; `.show()` in Python uses the same code."""

from typing import Any

from benchhouse.api.rows import plain as plain
from benchhouse.documents.problems import did_you_mean as did_you_mean
from benchhouse.report.terminal import screen
from benchhouse.report.terminal.failures import failure_blocks as failure_blocks
from benchhouse.report.terminal.failures import invalid_blocks as invalid_blocks
from benchhouse.report.terminal.history import history_arguments as history_arguments
from benchhouse.report.terminal.history import next_for_baseline as next_for_baseline
from benchhouse.report.terminal.progress import RunProgress as RunProgress
from benchhouse.report.terminal.screen import console as console
from benchhouse.report.terminal.screen import count as count
from benchhouse.report.terminal.screen import facts as facts
from benchhouse.report.terminal.screen import note as note
from benchhouse.report.terminal.screen import on_stderr as on_stderr
from benchhouse.report.terminal.screen import on_stdout as on_stdout
from benchhouse.report.terminal.screen import outcomes as outcomes
from benchhouse.report.terminal.screen import table as table
from benchhouse.report.terminal.screen import unread_events as unread_events
from benchhouse.report.terminal.screen import verdict as verdict
from benchhouse.results.numbers import number as number
from benchhouse.results.numbers import percent as percent
from benchhouse.results.numbers import quantity as quantity
from benchhouse.results.numbers import spread_text as spread_text
from benchhouse.results.numbers import titled as titled


def as_json(value: Any) -> None:
    """Print an answer of the API, or plain data, as JSON."""
    screen.as_json(plain(value))


def size(count: float) -> str:
    """Return a number of bytes as `1.2 MiB`."""
    from benchhouse.schema.quantities import show_bytes  # help is printed without importing pydantic

    return show_bytes(count)


def duration(seconds: float) -> str:
    """Return a number of seconds as `1m30s`."""
    from benchhouse.schema.quantities import show_seconds

    return show_seconds(seconds)
