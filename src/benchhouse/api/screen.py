"""How the command line prints: tables, notes and progress on a terminal, the same that `.show()` uses in Python."""

from benchhouse.api.answers import plain
from benchhouse.report.terminal.failures import failure_blocks, invalid_blocks
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
)
from benchhouse.results.numbers import number, percent, quantity, spread_text, titled

__all__ = [
    "RunProgress",
    "as_json",
    "console",
    "count",
    "facts",
    "failure_blocks",
    "invalid_blocks",
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
]
