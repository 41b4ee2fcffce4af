"""Offers a closed loop of calls that are one message out and one back: the engine itself moves their bytes.

What a driver does between an answer and the next call is done on cold caches, since the server had the core meanwhile:
a hundred steps of the interpreter cost five microseconds there. So a good answer is told by how it ends, and nothing
of the driver runs for it; whatever ends otherwise is the driver's to take apart.
"""

from collections.abc import Callable, Iterator
from itertools import cycle
from operator import itemgetter, sub
from os import read, write
from time import monotonic_ns
from typing import Any

from benchhouse.load.abreast import LOOK_S, AbreastLoad, Lane
from benchhouse.load.book import Answers, Book
from benchhouse.load.protocols.calls import CallFailed, WireDriver
from benchhouse.load.shape import Shape
from benchhouse.load.source import Pool, Source
from benchhouse.load.threads import LONGEST_NS

_AT_ONCE = 8192  # bytes that are read: most answers are shorter, and a larger buffer costs more than they do
_LONGEST = 4096  # bytes of a message: a socket with nothing on its way has room for these
_SPARE_NS = 1_000_000_000  # the server's own time limit comes first, and it names the reason
# A call as the loop needs it: its message, the ends of a good answer, what that answer is, the item.
Wire = tuple[bytes, tuple[bytes, ...], Any, Any]
_ANSWER, _ITEM = itemgetter(2), itemgetter(3)


def goes_by_wire(driver: Any, shape: Shape, source: Source) -> bool:
    """Whether all calls of such a load are short messages, and time alone decides which of them are measured."""
    if not hasattr(driver, "wired") or not isinstance(source, Pool) or shape.requests or shape.records:
        return False
    return all(wired is not None and len(wired[0]) <= _LONGEST for wired in map(driver.wired, source.items))


class WireLoad(AbreastLoad):
    """One process's share of a closed loop without pauses, by `AbreastLoad`'s way where connections are encrypted."""

    def __init__(self, make: Callable[[], WireDriver], source: Source, shape: Shape, book: Book) -> None:
        super().__init__(make, source, shape, book)
        self._by_wire = False
        self._flying: dict[int, tuple[Wire, int]] = {}  # by descriptor: the call, and when it was sent
        self._done: list[tuple[Wire, int, int]] = []  # calls that ended well and are not written down yet

    def _calls(self) -> Iterator[Any]:
        self._by_wire = all(lane.driver.plain for lane in self._lanes.values())
        if not self._by_wire:
            return super()._calls()
        wired, source = self._reader.wired, self._source
        assert isinstance(source, Pool)
        return cycle([(*wired(item), item) for item in source.turn(self._clock.shard, self._clock.shards)])

    def _keep_busy(self) -> None:
        if not self._by_wire:
            super()._keep_busy()
            return
        clock, flying, done, most, poll = self._clock, self._flying, self._done, self._at_a_time, self._poll.poll
        keep = done.append
        calls: Iterator[Any] = self._upcoming
        self._send_all()
        first_ns = now = monotonic_ns()
        fd = -1
        while flying or self._away:
            stop_ns = clock.stop_ns
            try:
                for fd, _ in poll(LOOK_S):
                    data = read(fd, _AT_ONCE)
                    call, sent_ns = flying[fd]
                    if data.endswith(call[1]):
                        now = monotonic_ns()
                        keep((call, sent_ns, now))
                        if now < stop_ns:
                            call = next(calls)
                            flying[fd] = call, monotonic_ns()
                            write(fd, call[0])
                        else:
                            self._retire(self._lanes[fd])
                    else:
                        self._take_apart(self._lanes[fd], data)
            except OSError as problem:  # of the one that was read or written last; the others are still to be read
                self._lose(self._lanes[fd], problem)
            if self._away:
                self._come_back()
            if len(done) >= most or now - first_ns > LONGEST_NS:
                self._write_down()
                first_ns = now = monotonic_ns()
                self._end_hanging(now)
            elif not done:
                now = monotonic_ns()

    def _take_apart(self, lane: Lane, data: bytes) -> None:
        """An answer that did not end as a good one does: it comes in pieces, or it is none."""
        call, sent_ns = self._flying[lane.fd]
        try:
            answer = lane.driver.received(call[3], data)
        except Exception as problem:  # noqa: BLE001 - a driver names what it knows; the rest is told, and ends nothing
            self._fail(lane, problem)
            return
        if answer is None:  # what comes next is no answer by itself, however it ends
            self._flying[lane.fd] = (call[0], (), *call[2:]), sent_ns
            return
        now = monotonic_ns()
        self._done.append((call, sent_ns, now))
        if now < self._clock.stop_ns:
            self._send(lane)
        else:
            self._retire(lane)

    def _lose(self, lane: Lane, problem: OSError) -> None:
        if not isinstance(problem, BlockingIOError):  # that is: nothing was there to read
            lane.driver.close()
            self._fail(lane, CallFailed("reset", str(problem)))

    def _end_hanging(self, now: int) -> None:
        for fd, (_, sent_ns) in list(self._flying.items()):
            if now - sent_ns > self._timeout_ns + _SPARE_NS:
                lane = self._lanes[fd]
                lane.driver.close()
                self._fail(lane, CallFailed("timeout", self._too_late().detail))

    def _begin_call(self, lane: Lane) -> None:
        if self._by_wire:
            wire: Any = next(self._upcoming)
            self._flying[lane.fd] = wire, monotonic_ns()
        else:
            super()._begin_call(lane)

    def _send(self, lane: Lane) -> bool:
        if not self._by_wire:
            return super()._send(lane)
        self._begin_call(lane)
        try:
            write(lane.fd, self._flying[lane.fd][0][0])
        except OSError as problem:
            self._lose(lane, problem)
            return False
        return True

    def _fail(self, lane: Lane, problem: BaseException) -> None:
        if self._by_wire:
            (_, _, _, lane.item), lane.sent_ns = self._flying[lane.fd]
        super()._fail(lane, problem)

    def _leave(self, lane: Lane) -> None:
        self._flying.pop(lane.fd, None)
        super()._leave(lane)

    def _write_down(self) -> None:
        super()._write_down()
        if not self._done:
            return
        calls, sent, ended = zip(*self._done, strict=True)
        items, values = list(map(_ITEM, calls)), list(map(_ANSWER, calls))
        self._done.clear()
        if max(map(sub, ended, sent)) <= self._timeout_ns:
            answers = Answers(items, values, sent, ended, self._reader.operations(items, values))
            with self._lock:
                if self._book.settle_answers(answers):
                    self._note_life(None, ended[-1])
                    return
        self._settle(
            [self._told(self._reader, 0, True, *each) for each in zip(items, values, sent, ended, strict=True)]
        )
