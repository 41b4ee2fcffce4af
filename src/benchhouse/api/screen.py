"""How the command line prints: tables, notes and progress on a terminal, the same that `.show()` uses in Python."""

from benchhouse.api.answers import plain
from benchhouse.documents.problems import did_you_mean
from benchhouse.report.terminal.failures import failure_blocks, invalid_blocks
from benchhouse.report.terminal.history import history_arguments, next_for_baseline
from benchhouse.report.terminal.progress import RunProgress
from benchhouse.report.terminal.screen import (
    as_json,
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
    "spread_text",
    "table",
    "titled",
    "unread_events",
]
