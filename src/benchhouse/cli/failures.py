"""What failed, for people: one block a kind of failure, however many trials it hit."""

from typing import Any

from rich.text import Text

from benchhouse.cli import show

_MOST_GROUPS = 5
_MOST_LINES = 8


def failure_blocks(failures: list[dict[str, Any]]) -> None:
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for failure in failures:
        key = (failure.get("point", ""), failure["outcome"], failure.get("code", ""), failure.get("message", ""))
        groups.setdefault(key, []).append(failure)
    for group in list(groups.values())[:_MOST_GROUPS]:
        _block(group[0], len(group))
    if len(groups) > _MOST_GROUPS:
        show.note(f"... and {show.count(len(groups) - _MOST_GROUPS, 'other kind')} of failure: bench report, or --json")


def _block(failure: dict[str, Any], trials: int) -> None:
    """Where and why it failed, its last words, its folder, and the line that runs it again."""
    console = show.console(stderr=True)
    code = failure.get("code") or ""
    reason = f"{failure['outcome']}: {code + ': ' if code else ''}{failure.get('message') or failure['reason']}"
    where = f"{failure['point']}: " if failure.get("point") else ""
    often = f"  ({trials} trials)" if trials > 1 else ""
    console.print(Text(f"✗ {where}{reason}{often}", style="red"), soft_wrap=True)
    tail = failure.get("traceback") or failure.get("log_tail") or ""
    for line in tail.strip().splitlines()[-_MOST_LINES:]:
        console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    console.print(Text(f"    folder  {failure['folder']}"), soft_wrap=True)
    console.print(Text(f"    again   {failure['rerun']}"), soft_wrap=True)
