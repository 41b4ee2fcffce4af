"""Trials that a rule may make needless: held until those before them have ended, then run or skipped."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from benchhouse.plan import PlannedTrial

Enough = Callable[[PlannedTrial], bool | None]
"""Whether a trial's point has repetitions enough without it; None: those before it must end first."""


class Waiting(Protocol):
    planned: PlannedTrial


Item = TypeVar("Item", bound=Waiting)


class HeldTrials:
    """Asks the rule, where there is one, of each trial in turn."""

    def __init__(self, enough: Enough | None) -> None:
        self.enough = enough
        self.held: Waiting | None = None
        self.skipped = 0

    def next(self, todo: Iterator[Item], under_way: Iterable[Item]) -> Item | None:
        """The next trial that is wanted; none for now where the rule must first see how those before it end."""
        item: Item | None = self.held or next(todo, None)  # type: ignore[assignment]
        self.held = None
        busy = {other.planned.instance_digest for other in under_way} if self.enough else set()
        while item is not None and self.enough and not item.planned.warmup:
            decided = self.enough(item.planned)
            if decided is None and item.planned.instance_digest in busy:
                self.held = item
                return None
            if not decided:
                break
            self.skipped += 1
            item = next(todo, None)
        return item
