"""Sources: the requests for the engine."""

from collections.abc import Iterator, Sequence
from itertools import count, cycle
from math import gcd
from typing import Any, NamedTuple, Protocol

from benchhouse.load.protocols.calls import BodySink, CallResult


class Planned(NamedTuple):
    """A prepared request: the item for the tally, the bytes for an HTTP driver, then large content piece by piece. An
    answer that need not be kept goes into a sink."""

    item: Any
    data: bytes = b""
    pieces: Sequence[memoryview] = ()
    sink: BodySink | None = None


class RequestSource(Protocol):
    """Requests by number. All load processes together use each number once, in any order."""

    seed: int
    needs_replies: bool  # whether the next request depends on the previous answer
    events: float  # expected events per answer: tokens of a stream, otherwise 1
    alone: str  # why one load process must make all requests; empty if several may

    def take(self, index: int) -> Planned: ...

    def answered(self, item: Any, reply: CallResult) -> None: ...


class RequestPool:
    """Requests that are created before the measured time, used in turn."""

    needs_replies = False

    def __init__(self, planned: Sequence[Planned], seed: int, *, events: float = 1.0, alone: str = "") -> None:
        self.seed, self.events, self.alone = seed, events, alone
        self._planned = planned

    def take(self, index: int) -> Planned:
        return self._planned[index % len(self._planned)]

    def following(self, first: int, step: int) -> Iterator[tuple[int, Any]]:
        """Yield numbers and items of one load process, the same as from `take`, without running Python code for
        each."""
        size = len(self._planned)
        turn = [self._planned[(first + at * step) % size].item for at in range(size // gcd(step, size))]
        return zip(count(first, step), cycle(turn), strict=False)

    def answered(self, item: Any, reply: CallResult) -> None:
        pass
