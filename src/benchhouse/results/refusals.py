"""Why trials were refused: invalid ones measured something, but their own check says that it doesn't hold."""

from collections.abc import Iterable, Mapping
from typing import Any

from benchhouse.results.numbers import plural

_KINDS = 3


def invalid_rows(trials: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of trial_fact whose numbers no summary takes, though there are some."""
    return [row for row in trials if row["outcome"] == "invalid"]


def reasons(told: Iterable[tuple[str, str]]) -> str:
    """Codes and messages in one line: each code once, in the words of its first trial, and how many trials have it."""
    kinds: dict[str, list[str]] = {}
    for code, message in told:
        kinds.setdefault(code, []).append(message)
    shown = [
        f"{code}: {messages[0]}" + (f" ({plural(len(messages), 'trial')})" if len(messages) > 1 else "")
        for code, messages in list(kinds.items())[:_KINDS]
    ]
    more = len(kinds) - len(shown)
    return "; ".join([*shown, f"and {plural(more, 'more reason')}"] if more else shown)
