"""Why trials were refused: invalid ones measured something, but their own check says that it doesn't hold."""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from benchhouse.results.numbers import plural
from benchhouse.warehouse.grouping import grouped

_KINDS = 3
INVALID_HINT = "A figure is INVALID where it can be off by more than is taken; why: bench report, under Warnings"


def invalid_rows(trials: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of trial_fact whose numbers no summary takes, though there are some."""
    return [row for row in trials if row["outcome"] == "invalid"]


def reasons(failures: Iterable[tuple[str, str]]) -> str:
    """Codes and messages in one line: each code once, with the message of its first trial, and the number of trials."""
    kinds = grouped(failures, itemgetter(0))
    shown = [
        f"{code}: {own[0][1]}" + (f" ({plural(len(own), 'trial')})" if len(own) > 1 else "")
        for code, own in list(kinds.items())[:_KINDS]
    ]
    more = len(kinds) - len(shown)
    return "; ".join([*shown, f"and {plural(more, 'more reason')}"] if more else shown)
