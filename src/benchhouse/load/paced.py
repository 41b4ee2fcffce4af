"""Offers an open loop through connections that one thread keeps, for drivers that need not wait.

The thread sleeps until a call is due or an answer is there. With a thread for each connection, an answer would wait for
the interpreter while another thread has it, and that wait would be in its latency. An answer counts as come when the
kernel says that there is something to read; of one that comes in pieces, the last piece.
"""

import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import Any

from benchhouse.load.abreast import LOOK_S, AbreastLoad, Lane, alongside
from benchhouse.load.book import Book, Call
from benchhouse.load.protocols.calls import AbreastDriver, Reply
from benchhouse.load.reactor import Alarm
from benchhouse.load.shape import Shape
from benchhouse.load.source import Source
from benchhouse.load.threads import LONGEST_NS, failed

_SOON_S = 0.001  # to look for connections that are being made
_IDLE_NS = 300_000  # to the next call, and none under way: time to write some down
_FEW, _MANY = 16, 64  # calls that are written down then; in any case
_ADDED_AT_A_TIME = 4  # connections, of the openers: others may have to connect again


class PacedLoad(AbreastLoad):
    """One process's share of an open loop."""

    def __init__(self, make: Callable[[], AbreastDriver], source: Source, shape: Shape, book: Book) -> None:
        super().__init__(make, source, shape, book)
        self._calling: dict[Lane, Call] = {}  # sent, or waiting for a connection to be made
        self._free: list[Lane] = []  # those without a connection first: the last one is taken
        self._waiting: deque[Call] = deque()  # for a free one
        self._ended: list[tuple[Call, Any]] = []  # not written down yet
        self._deaf: set[Lane] = set()  # the server spoke unasked: not listened to until it is asked something
        self._adding = 0
        self._alarm = Alarm()
        self._poll.register(self._alarm.fd, select.EPOLLIN | select.EPOLLET)

    def _keep_schedule(self) -> None:
        """Is kept by the thread that makes the calls."""

    def _keep_busy(self) -> None:
        clock, lanes, poll, alarm = self._clock, self._lanes, self._poll.poll, self._alarm
        self._free = list(lanes.values())
        schedule, armed = self._due_calls(), 0
        upcoming = next(schedule, None)
        while upcoming or self._calling or self._waiting:
            while upcoming and upcoming.due_ns <= monotonic_ns():
                self._give_out(upcoming)
                upcoming = next(schedule, None)
            if self._book.stopped:
                upcoming = None
            if upcoming and upcoming.due_ns != armed:
                armed = upcoming.due_ns
                alarm.set(armed)
            events = poll(_SOON_S if self._away else LOOK_S)
            now = monotonic_ns()  # all of these answers are there: reading one does not make the next one later
            for fd, _ in events:
                if lane := lanes.get(fd):
                    self._hear(lane, now)
            self._come_back()
            self._write_some(upcoming)
            if self._waiting and (self._book.stopped or monotonic_ns() > clock.stop_ns + self._timeout_ns):
                self._book.never_sent += sum(call.measured for call in self._waiting)
                self._waiting.clear()

    def _due_calls(self) -> Iterator[Call]:
        clock, shape = self._clock, self._shape
        for number, at in enumerate(shape.law.due(shape.rps, self._source.seed, shape.schedule_s)):
            due_ns = clock.begin_ns + at
            if due_ns >= clock.stop_ns or self._problems:
                return
            if number % clock.shards == clock.shard:
                yield Call(clock.index(), due_ns, clock.measures(due_ns), None)
        self._book.ended_early = True

    def _give_out(self, call: Call) -> None:
        call.item = self._source.take(call.index).item
        lanes = len(self._free) + len(self._calling) + self._adding
        if len(self._calling) + len(self._waiting) >= lanes < max(self._shape.max_in_flight // self._clock.shards, 1):
            self._add_one()
        if self._free:
            self._call(self._free.pop(), call)
        else:
            self._waiting.append(call)

    def _add_one(self) -> None:
        if self._adding >= _ADDED_AT_A_TIME:
            return
        self._adding += 1
        self._book.connections += 1
        self._book.connections_late += 1
        lane = Lane(alongside(self._make()))
        self._away[self._openers.submit(self._connect, lane.driver)] = lane

    def _call(self, lane: Lane, call: Call) -> None:
        self._calling[lane] = call
        self._in_flight = count = len(self._calling)
        if count > self._book.most_in_flight:
            self._book.most_in_flight = count
        if lane in self._deaf:
            self._deaf.discard(lane)
            self._poll.register(lane.fd, select.EPOLLIN)
        call.sent_ns = monotonic_ns()
        if lane.driver.fileno() < 0:
            self._away[self._openers.submit(lane.driver.open)] = lane
        else:
            self._say(lane, call)

    def _say(self, lane: Lane, call: Call) -> None:
        try:
            lane.send(call.item)
        except Exception as problem:  # noqa: BLE001 - a driver names what it knows; the rest is told, and ends nothing
            self._end(lane, failed(problem), monotonic_ns())

    def _hear(self, lane: Lane, now: int) -> None:
        if lane not in self._calling:  # should the connection be gone, the next call finds out
            self._deaf.add(lane)
            self._poll.unregister(lane.fd)
            return
        try:
            answer = lane.take()
        except Exception as problem:  # noqa: BLE001 - as above
            answer = failed(problem)
        if answer is not None:
            self._end(lane, answer, now)

    def _end(self, lane: Lane, answer: Any, now: int) -> None:
        call = self._calling.pop(lane)
        call.ended_ns = now
        self._in_flight = len(self._calling)
        self._ended.append((call, answer))
        with self._lock:
            self._note_life(answer.error if type(answer) is Reply else None, now, id(lane))
        if lane.driver.fileno() < 0:
            self._lanes.pop(lane.fd, None)
            self._deaf.discard(lane)
        self._free_again(lane)

    def _free_again(self, lane: Lane) -> None:
        if self._waiting:
            self._call(lane, self._waiting.popleft())
        elif lane.driver.fileno() < 0:
            self._free.insert(0, lane)
        else:
            self._free.append(lane)

    def _come_back(self) -> int:
        for future in [future for future in self._away if future.done()]:
            lane, problem = self._away.pop(future), future.exception()
            call = self._calling.get(lane)
            if call is None:
                self._adding -= 1
            if problem is not None and call is not None:
                self._end(lane, failed(problem), monotonic_ns())
            elif problem is None and lane.driver.fileno() >= 0:  # else the load is over
                self._join(lane)
                if call is not None:
                    self._say(lane, call)
                else:
                    self._free_again(lane)
        return 0

    def _write_some(self, upcoming: Call | None) -> None:
        """While there is nothing else to do; a pause in which others' answers wait must be short in any case."""
        ended = self._ended
        if not ended:
            return
        now = monotonic_ns()
        idle = not self._calling and (upcoming is None or upcoming.due_ns - now > _IDLE_NS)
        if idle or len(ended) >= _MANY or now - ended[0][0].ended_ns > LONGEST_NS:
            self._settle([self._as_told(*each) for each in ended[:_FEW]])
            del ended[:_FEW]

    def _as_told(self, call: Call, answer: Any) -> tuple[Call, Reply]:
        if call.ended_ns - call.sent_ns > self._timeout_ns:
            return call, self._too_late()
        return call, answer if type(answer) is Reply else self._reader.reply(call.item, answer)

    def _write_down(self) -> None:
        self._settle([self._as_told(*each) for each in self._ended])
        self._ended.clear()

    def _give_back(self, drivers: Sequence[AbreastDriver]) -> None:
        idle = [lane.driver for lane in self._free]
        super()._give_back([*drivers, *idle])
        self._alarm.close()
