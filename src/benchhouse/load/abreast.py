"""Offers a closed loop through connections that one thread keeps busy side by side, for drivers that need not wait.

A thread for each connection costs a switch and a fight for the interpreter with every small call; this costs a look at
which of the connections can be read.
"""

import select
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic_ns, sleep
from typing import Any

from benchhouse.load.book import Book
from benchhouse.load.protocols.calls import AbreastDriver, Reply
from benchhouse.load.shape import Shape
from benchhouse.load.source import Pool, Source
from benchhouse.load.threads import BACK_OFF_S, LONGEST_NS, Made, ThreadLoad, failed

_OPENERS = 8  # connections that are made at a time
LOOK_S = 0.05  # at the latest, for connections that were made again


def goes_abreast(driver: Any, shape: Shape, source: Source) -> bool:
    """Whether one thread can keep up such a load: no client of it ever pauses, and none needs another's answer."""
    if shape.think_time > 0 or source.needs_replies or not getattr(driver, "abreast", False):
        return False
    whole = getattr(driver, "goes_out_whole", None)
    return whole is None or (isinstance(source, Pool) and all(map(whole, source.items)))


class Lane:
    """One connection, and the call that is under way on it."""

    __slots__ = ("driver", "fd", "index", "item", "measured", "send", "sent_ns", "take")

    def __init__(self, driver: AbreastDriver) -> None:
        self.driver: Any = driver
        self.fd = driver.fileno()
        self.send, self.take = driver.send, driver.take
        self.index, self.measured, self.item, self.sent_ns = 0, True, None, 0


class AbreastLoad(ThreadLoad):
    """One process's share of a closed loop without pauses."""

    def __init__(self, make: Callable[[], AbreastDriver], source: Source, shape: Shape, book: Book) -> None:
        super().__init__(make, source, shape, book)
        self._lanes: dict[int, Lane] = {}  # by the descriptor of their connection
        self._made: list[Made] = []  # calls that have ended and are not written down yet
        self._away: dict[Future[Any], Lane] = {}  # that pause after a failure, and connect again where they must
        self._poll = select.epoll()
        self._openers = ThreadPoolExecutor(_OPENERS)
        self._reader: Any = make()  # tells what an answer means; never connects

    def prepare(self, connections: int) -> str:
        drivers = [alongside(self._make()) for _ in range(connections)]
        opened = [self._openers.submit(driver.open) for driver in drivers]
        self._problems += [str(problem) for each in opened if (problem := each.exception())]
        if self._problems:
            self._give_back(drivers)
            return self._problems[0]
        for lane in map(Lane, drivers):
            self._join(lane)
        self._book.connections += connections
        self._start(self._keep_going)
        return ""

    def _keep_going(self) -> None:
        self._go.wait()
        self._book.start_late_ns = monotonic_ns() - self._clock.begin_ns
        try:
            self._keep_busy()
            self._write_down()
        except Exception as problem:  # noqa: BLE001 - of the source or the tally; told by `run`
            self._problems.append(f"{type(problem).__name__}: {problem}")
        finally:
            self._give_back([lane.driver for lane in (*self._lanes.values(), *self._away.values())])

    def _give_back(self, drivers: Sequence[AbreastDriver]) -> None:
        self._openers.shutdown()
        self._poll.close()
        for driver in drivers:
            driver.close()

    def _keep_busy(self) -> None:
        """Between an answer and the next call lies as little as can be: whatever runs there finds cold caches."""
        clock, lanes, made, most, poll = self._clock, self._lanes, self._made, self._at_a_time, self._poll.poll
        calls, measures, problems = self._upcoming, None if clock.by_time else clock.measures, self._problems
        busy = self._send_all()
        first_ns = now = monotonic_ns()
        while busy or self._away:
            for fd, _ in poll(LOOK_S):
                lane = lanes[fd]
                try:
                    answer = lane.take()
                except Exception as problem:  # noqa: BLE001 - a driver names what it knows; the rest is told, and ends nothing
                    self._fail(lane, problem)
                    busy -= 1
                    continue
                if answer is None:  # there is more to come
                    continue
                now = monotonic_ns()
                made.append((lane.index, lane.measured, lane.item, answer, lane.sent_ns, now))
                if now >= clock.stop_ns or problems:
                    self._retire(lane)
                    busy -= 1
                    continue
                lane.index, lane.item = next(calls)  # from here on as `_send`
                lane.sent_ns = now = monotonic_ns()
                if measures is not None:
                    lane.measured = measures(now)
                try:
                    lane.send(lane.item)
                except Exception as problem:  # noqa: BLE001 - as above
                    self._fail(lane, problem)
                    busy -= 1
            if self._away:
                busy += self._come_back()
                now = monotonic_ns()
            if len(made) >= most or (made and now - first_ns > LONGEST_NS):
                self._write_down()
                first_ns = now

    def _send_all(self) -> int:
        """The first call of each; how many of them are busy."""
        with self._lock:
            self._in_flight = self._book.most_in_flight = len(self._lanes)
        return sum([self._send(lane) for lane in list(self._lanes.values())])

    def _begin_call(self, lane: Lane) -> None:
        lane.index, lane.item = next(self._upcoming)
        lane.sent_ns = now = monotonic_ns()
        lane.measured = self._clock.by_time or self._clock.measures(now)

    def _send(self, lane: Lane) -> bool:
        """Begin the lane's next call; False where that came to nothing."""
        self._begin_call(lane)
        try:
            lane.send(lane.item)
        except Exception as problem:  # noqa: BLE001 - as above
            self._fail(lane, problem)
            return False
        return True

    def _fail(self, lane: Lane, problem: BaseException) -> None:
        """The lane's call came to nothing: it pauses, while the others go on."""
        answer, now = failed(problem), monotonic_ns()
        self._made.append((lane.index, lane.measured, lane.item, answer, lane.sent_ns, now))
        with self._lock:
            self._note_life(answer.error, now, id(lane))
        self._leave(lane)
        self._away[self._openers.submit(_recover, lane.driver)] = lane

    def _come_back(self) -> int:
        """Lanes that have paused take up their work, unless the load is over; returns how many of them are busy."""
        busy = 0
        for future in [future for future in self._away if future.done()]:
            lane, problem = self._away.pop(future), future.exception()
            if monotonic_ns() >= self._clock.stop_ns or self._problems:
                self._retire(lane)
            elif problem is not None:  # as if its next call had found no connection
                self._begin_call(lane)
                self._fail(lane, problem)
            else:
                self._join(lane)
                busy += self._send(lane)
        return busy

    def _join(self, lane: Lane) -> None:
        lane.fd = lane.driver.fileno()
        self._lanes[lane.fd] = lane
        self._poll.register(lane.fd, select.EPOLLIN)

    def _leave(self, lane: Lane) -> None:
        if self._lanes.pop(lane.fd, None) and lane.driver.fileno() == lane.fd:
            self._poll.unregister(lane.fd)  # one that was closed has left by that

    def _retire(self, lane: Lane) -> None:
        self._leave(lane)
        lane.driver.close()
        with self._lock:
            self._in_flight -= 1

    def _write_down(self) -> None:
        """Those that failed apart, so that they do not keep the others from being written down column by column."""
        driver, made = self._reader, self._made
        bad = [each for each in made if type(each[3]) is Reply]
        self._settle_made(driver, [each for each in made if type(each[3]) is not Reply] if bad else made)
        self._settle_made(driver, bad)
        made.clear()


def alongside(driver: Any) -> AbreastDriver:
    """The driver itself, or what it has for this way of calling."""
    made: AbreastDriver = driver.alongside() if hasattr(driver, "alongside") else driver
    return made


def _recover(driver: AbreastDriver) -> None:
    sleep(BACK_OFF_S)
    if driver.fileno() < 0:
        driver.open()
