"""Failed and invalid trials for people: one block per kind, however many trials it includes."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchhouse.report.terminal import screen
from benchhouse.warehouse.grouping import grouped

if TYPE_CHECKING:
    from benchhouse.runs.status import UnsuccessfulTrial

_MOST_GROUPS = 5
_MOST_LINES = 8
_KEPT = "the numbers are kept as evidence; no summary or comparison takes them"


def failure_blocks(failures: "Sequence[UnsuccessfulTrial]") -> None:
    def kind(trial: "UnsuccessfulTrial") -> tuple[str, ...]:
        # Without a code, the place of a failure is part of its kind.
        return "" if trial.code else trial.point, trial.outcome, trial.code, trial.message or trial.reason

    _blocks(failures, kind, "failure")


def invalid_blocks(invalid: "Sequence[UnsuccessfulTrial]") -> None:
    """Print invalid trials. Their reasons contain numbers that differ between trials: one code at one point is one
    kind."""
    _blocks(invalid, lambda trial: (trial.point, trial.code), "invalid trial")


def _blocks(
    trials: "Sequence[UnsuccessfulTrial]", kind: "Callable[[UnsuccessfulTrial], tuple[str, ...]]", noun: str
) -> None:
    groups = grouped(trials, kind)
    for group in list(groups.values())[:_MOST_GROUPS]:
        _block(group)
    if len(groups) > _MOST_GROUPS:
        kinds = screen.count(len(groups) - _MOST_GROUPS, "other kind")
        screen.note(f"... and {kinds} of {noun}: bench report, or --json")


def _block(group: "list[UnsuccessfulTrial]") -> None:
    """Print where and why a trial failed, its last output, its folder, and the command that runs it again.

    An invalid trial ran to its end: its reason matters, not its last output.
    """
    from rich.text import Text

    from benchhouse.schema.trial import outcome_words  # here, so that `bench list` need not import pydantic

    failure, console = group[0], screen.console(stderr=True)
    invalid = failure.outcome == "invalid"
    points = list(dict.fromkeys(str(trial.point) for trial in group))
    where = points[0] + (f" and {screen.count(len(points) - 1, 'other point')}" if len(points) > 1 else "")
    parts = filter(None, (where, outcome_words(failure.outcome), failure.code))
    reason = ": ".join([*parts, failure.message or failure.reason])
    often = f" ({len(group)} trials)" if len(group) > 1 else ""
    first, _, last_words = reason.partition("\n")  # of a server: the error, then its last output
    line = screen.on_stderr(re.sub(" +", " ", f"✗ {first}{often}"))
    console.print(Text(line, style="red"), soft_wrap=True)
    tail = _KEPT if invalid else failure.traceback or last_words or failure.log_tail or ""
    for line in tail.strip().splitlines()[-_MOST_LINES:]:
        console.print(Text(f"    {line}", style="dim"), soft_wrap=True)
    if failure.folder:  # otherwise it left no evidence
        console.print(Text(f"    folder  {failure.folder}"), soft_wrap=True)
        console.print(Text(f"    again   {failure.rerun}"), soft_wrap=True)
