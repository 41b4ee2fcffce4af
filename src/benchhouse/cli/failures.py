"""What failed and what is invalid, for people: one block a kind, however many trials it hit."""

import re
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
        words = failure.get("message") or failure["reason"]
        # Without words of its own, all that is known of a failure is where it happened.
        where = "" if failure.get("code") else failure.get("point", "")
        key = (where, failure["outcome"], failure.get("code", ""), words)
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
        _block(group)
    if len(groups) > _MOST_GROUPS:
        show.note(f"... and {show.count(len(groups) - _MOST_GROUPS, 'other kind')} of {noun}: bench report, or --json")


def _block(group: list[dict[str, Any]]) -> None:
    """Where and why it failed, its last words, its folder, and the line that runs it again.

    An invalid trial ran to its end: what it has to say is its reason, not its last words.
    """
    failure, console = group[0], show.console(stderr=True)
    invalid = failure["outcome"] == "invalid"
    words = (_points(group), outcome_words(failure["outcome"]), failure.get("code"))
    reason = ": ".join([*filter(None, words), failure.get("message") or failure["reason"]])
    often = f" ({len(group)} trials)" if len(group) > 1 else ""
    first, _, said = reason.partition("\n")  # of a server: what is wrong, then its last words
    told = show.on_stderr(re.sub(" +", " ", f"✗ {first}{often}"))
    console.print(Text(told, style="red"), soft_wrap=True)
    tail = _KEPT if invalid else failure.get("traceback") or said or failure.get("log_tail") or ""
    for line in tail.strip().splitlines()[-_MOST_LINES:]:
        console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    console.print(Text(f"    folder  {failure['folder']}"), soft_wrap=True)
    console.print(Text(f"    again   {failure['rerun']}"), soft_wrap=True)


def _points(group: list[dict[str, Any]]) -> str:
    """The first of the points, and how many others there are."""
    points = list(dict.fromkeys(str(failure.get("point", "")) for failure in group))
    return points[0] + (f" and {show.count(len(points) - 1, 'other point')}" if len(points) > 1 else "")
