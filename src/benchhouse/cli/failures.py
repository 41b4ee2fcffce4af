"""What failed and what is invalid, for people: one block a kind, however many trials it hit."""

from typing import Any

from rich.text import Text

from benchhouse.cli import show
from benchhouse.schema.trial import outcome_words

_MOST_GROUPS = 5
_MOST_LINES = 8
_KEPT = "the numbers are kept as evidence; no summary or comparison takes them"


def failure_blocks(failures: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for failure in failures:
        key = (failure.get("point", ""), failure["outcome"], failure.get("code", ""), failure.get("message", ""))
        groups.setdefault(key, []).append(failure)
    _blocks(list(groups.values()), "failure")


def invalid_blocks(invalid: list[dict[str, Any]]) -> None:
    """The reasons hold figures that differ from trial to trial: one code at one point is one kind."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for trial in invalid:
        groups.setdefault((trial.get("point", ""), trial.get("code", "")), []).append(trial)
    _blocks(list(groups.values()), "invalid trial")


def _blocks(groups: list[list[dict[str, Any]]], noun: str) -> None:
    for group in groups[:_MOST_GROUPS]:
        _block(group[0], len(group))
    if len(groups) > _MOST_GROUPS:
        show.note(f"... and {show.count(len(groups) - _MOST_GROUPS, 'other kind')} of {noun}: bench report, or --json")


def _block(failure: dict[str, Any], trials: int) -> None:
    """Where and why it failed, its last words, its folder, and the line that runs it again.

    An invalid trial ran to its end: what it has to say is its reason, not its last words.
    """
    console = show.console(stderr=True)
    invalid = failure["outcome"] == "invalid"
    words = (failure.get("point"), outcome_words(failure["outcome"]), failure.get("code"))
    reason = ": ".join([*filter(None, words), failure.get("message") or failure["reason"]])
    often = f"  ({trials} trials)" if trials > 1 else ""
    console.print(Text(f"✗ {reason}{often}", style="red"), soft_wrap=True)
    tail = _KEPT if invalid else failure.get("traceback") or failure.get("log_tail") or ""
    for line in tail.strip().splitlines()[-_MOST_LINES:]:
        console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    console.print(Text(f"    folder  {failure['folder']}"), soft_wrap=True)
    console.print(Text(f"    again   {failure['rerun']}"), soft_wrap=True)
