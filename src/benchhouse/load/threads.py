"""Generates load through blocking calls, with a driver in each thread, for client libraries that own their sockets."""

import queue
import threading
from collections.abc import Callable, Iterator
from operator import sub
from time import monotonic_ns, sleep
from typing import Any

from benchhouse.load.load_record import Answers, Call, LoadRecord, SendSchedule
from benchhouse.load.protocols.calls import CONNECTING, CallDriver, CallFailed, CallResult
from benchhouse.load.scheduling_delays import LOOK_NS, TICK_NS, DelayMeter, RunDelay, make_room
from benchhouse.load.shape import Shape
from benchhouse.load.source import RequestPool, RequestSource
from benchhouse.load.streams import FINE_NS
from benchhouse.schema.errors import BenchError

_SECOND_NS = 1_000_000_000
_BACK_OFF_S = 0.05
_AT_A_TIME = 256  # calls that a thread records together: one by one would cost more than many calls themselves
_LONGEST_NS = _SECOND_NS // 4
_DEAD_AFTER_NS = 3 * _SECOND_NS  # the same as for sockets
# A call that has ended: its number, whether it is measured, its item, its result, when it was sent and answered.
Made = tuple[int, bool, Any, Any, int, int]
# Positions of long calls in a list of these, and how long their thread waited for a core during them.
Waited = tuple[list[int], int]


class ThreadLoad:
    """One process's share of a load. Threads make the calls; this thread runs the schedule, another records the
    seconds."""

    def __init__(self, make: Callable[[], CallDriver], source: RequestSource, shape: Shape, book: LoadRecord) -> None:
        self._make, self._source, self._shape, self._book = make, source, shape, book
        self._lock = threading.Lock()  # all threads share one record
        self._due: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._pending = 0  # calls of an open loop that were handed out and have not ended
        self._in_flight = 0
        self._go = threading.Event()
        self._over = threading.Event()
        self._problems: list[str] = []
        self._upcoming: Iterator[tuple[int, Any]] = iter(())
        self._good_ns = 0  # end of the last successful call, as far as recorded
        self._cut: set[int] = set()  # clients whose last call could not connect
        self._cut_ns = 0  # when that last happened
        self._open = threading.Semaphore(0)
        self._watcher = threading.Thread(target=self._watch_over, daemon=True)
        self._watch = DelayMeter()
        self._pauses = self._watch.pauses
        self._timeout_ns = round(shape.timeout * _SECOND_NS)
        self._late_ns = round(shape.error_limit * _SECOND_NS)  # the same as for sockets
        self._open_loop, self._think_s = shape.open_loop, shape.think_time
        # In a closed loop without pauses all threads are always in flight: no call needs to wait for a lock.
        self._counts_each = shape.open_loop or shape.think_time > 0 or source.needs_replies

    def prepare(self, threads: int) -> str:
        """Open a driver in each thread. Return the error if one could not be opened, otherwise an empty text."""
        make_room(threads)
        for _ in range(threads):
            self._add_thread()
        for _ in range(threads):
            self._open.acquire()
        if self._problems:
            self._go.set()
        return self._problems[0] if self._problems else ""

    def run(self, clock: SendSchedule) -> None:
        self._clock, self._good_ns, self._watch.looked_ns = clock, clock.begin_ns, clock.begin_ns
        self._upcoming = self._calls()
        self._book.start_ns, self._book.end_ns = clock.window_ns, clock.end_ns
        _sleep_until(clock.begin_ns)
        self._go.set()
        self._watcher.start()
        if self._shape.open_loop:
            self._keep_schedule()
        for thread in self._threads:
            thread.join()
        self._over.set()
        self._watcher.join()
        if self._problems:
            raise BenchError(f"a thread of the load died: {self._problems[0]}")
        if not self._book.cpu_share:
            self._book.cpu_all_ns, self._book.cpu_share = clock.cpu_ns(), clock.cpu_share()

    def _calls(self) -> Iterator[tuple[int, Any]]:
        """Yield the numbers and items of this process's calls in a closed loop without pauses. Thread-safe."""
        if type(self._source) is RequestPool:
            return self._source.following(self._clock.shard, self._clock.shards)
        return map(self._numbered, iter(self._clock.index, None))

    def _numbered(self, index: int) -> tuple[int, Any]:
        return index, self._source.take(index).item

    def _add_thread(self) -> None:
        self._book.connections += 1
        thread = threading.Thread(target=self._work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _keep_schedule(self) -> None:
        clock, shape = self._clock, self._shape
        most = max(shape.max_in_flight // clock.shards, 1)
        for number, at in enumerate(shape.law.due(shape.rps, self._source.seed, shape.schedule_s)):
            due_ns = clock.begin_ns + at
            if due_ns >= clock.stop_ns or self._problems:
                break
            if number % clock.shards == clock.shard:
                _sleep_until(due_ns)
                call = Call(clock.index(), due_ns, clock.measures(due_ns), None)
                with self._lock:
                    self._pending += 1
                    too_few = self._pending > len(self._threads) < most
                    call.queued = self._pending > most
                if too_few:
                    self._book.connections_late += 1
                    self._add_thread()
                self._due.put(call)
        else:
            self._book.ended_early = True
        for _ in self._threads:
            self._due.put(None)

    def _work(self) -> None:
        try:
            driver = self._make()
            opened = self._connect(driver)
        except Exception as problem:  # noqa: BLE001 - told by `prepare` or `run`
            self._problems.append(str(problem) if isinstance(problem, CallFailed) else _shown(problem))
            return
        finally:
            self._open.release()
        if not opened:
            return
        delay = RunDelay()
        self._go.wait()
        try:
            self._book.start_late_ns = self._book.start_late_ns or monotonic_ns() - self._clock.begin_ns
            if self._counts_each:
                self._one_by_one(driver, delay)
            else:
                self._without_pause(driver, delay)
        except Exception as problem:  # noqa: BLE001 - of the source or the tally; told by `run`
            self._problems.append(_shown(problem))
        finally:
            delay.close()
            driver.close()

    def _connect(self, driver: CallDriver) -> bool:
        """Open the driver. A thread that was added during the load retries until the load ends: its server may just
        have died, which the threads whose calls fail report."""
        while True:
            try:
                driver.open()
                return True
            except CallFailed as problem:
                if not self._go.is_set():
                    raise
                now = monotonic_ns()
                with self._lock:
                    self._note_life(problem.kind, now)
                if now >= self._clock.stop_ns or self._problems:
                    return False
                sleep(_BACK_OFF_S)

    def _one_by_one(self, driver: CallDriver, delay: RunDelay) -> None:
        ended: list[tuple[Call, CallResult]] = []
        before: Call | None = None
        while not self._problems and (call := self._next()):
            ended.append((call, self._make_call(driver, call, delay)))
            if len(ended) >= _AT_A_TIME or call.ended_ns - ended[0][0].ended_ns > _LONGEST_NS:
                before = self._doubt([call for call, _ in ended], before)
                self._settle(ended)
        self._doubt([call for call, _ in ended], before)
        self._settle(ended)

    def _doubt(self, calls: list[Call], before: Call | None) -> Call | None:
        """Complete the delays of these calls by their thread; `before` is the last call before them."""
        if calls:
            self._watch.wait_until_known(calls[-1].ended_ns)
        for call in calls:
            if self._pauses.since(call.sent_ns):
                call.waited_ns += self._pauses.within(call.sent_ns, call.ended_ns)
            call.waited_ns = min(call.waited_ns, call.ended_ns - call.sent_ns)
            self._note_late(call.sent_ns, call.waited_ns)
            if call.queued and before:
                call.follow(before)
            before = call
        return before

    def _without_pause(self, driver: CallDriver, delay: RunDelay) -> None:
        """Run one client of a closed loop. Almost nothing is done between two calls: work after each call finds cold
        caches, and costs several times what it costs if it is done for many calls at once."""
        clock, problems, calls = self._clock, self._problems, self._upcoming
        measures, by_time = clock.measures, clock.by_time
        ask: Callable[[Any], Any] = getattr(driver, "ask", driver.call)
        made: list[Made] = []
        waited: list[Waited] = []
        # positions of long calls since the delay was last read; a shorter call can't have waited long
        long: list[int] = []
        count = 0
        with self._lock:
            self._in_flight += 1
            self._book.most_in_flight = max(self._book.most_in_flight, self._in_flight)
        delay.look()
        turns = delay.turns
        ended_ns = first_ns = monotonic_ns()
        look_ns = ended_ns + LOOK_NS
        while ended_ns < clock.stop_ns and not problems:
            index, item = next(calls)
            sent_ns = monotonic_ns()
            measured = by_time or measures(sent_ns)  # if time decides, `_call_of` and the record check it later
            if not measured and sent_ns >= clock.stop_ns:  # another thread has taken the last one
                break
            try:
                answer = ask(item)
            except Exception as problem:  # noqa: BLE001 - a driver names what it knows; nothing else ends the load
                answer = _failed(problem)
            ended_ns = monotonic_ns()
            made.append((index, measured, item, answer, sent_ns, ended_ns))
            if ended_ns - sent_ns > FINE_NS:
                long.append(len(made) - 1)
                if ended_ns >= look_ns:
                    waited.append((long, delay.look()))
                    long, look_ns = [], ended_ns + LOOK_NS
                    self._ring(ended_ns)
            if type(answer) is CallResult and answer.error is not None:
                with self._lock:
                    self._note_life(answer.error, ended_ns)
                sleep(_BACK_OFF_S)
                ended_ns = monotonic_ns()
            if len(made) >= _AT_A_TIME or ended_ns - first_ns > _LONGEST_NS:
                if long:
                    waited.append((long, delay.look()))
                count += len(made)
                self._settle_made(driver, made, waited)
                long, first_ns = [], ended_ns
        waited.append((long, delay.look()))
        count += len(made)
        turns = delay.turns - turns
        self._settle_made(driver, made, waited)
        with self._lock:
            self._in_flight -= 1
            self._book.calls += count
            self._book.broken += turns if delay.counts else count

    def _ring(self, ended_ns: int) -> None:
        if len(self._threads) > 1:  # otherwise no other thread needs Python's lock
            self._watch.ring(ended_ns)

    def _settle_made(self, driver: CallDriver, made: list[Made], waited: list[Waited]) -> None:
        """Record calls of `_without_pause`; if all succeeded, column by column."""
        if made:
            self._watch.wait_until_known(made[-1][-1])
            doubts = self._doubts(made, waited)
            doubtful = [self._call_of(driver, made[place], waits) for place, waits in doubts.items()]
            for place in reversed(doubts):
                del made[place]
            self._settle_sure(driver, made)
            self._settle(doubtful)
        made.clear()
        waited.clear()

    def _doubts(self, made: list[Made], waited: list[Waited]) -> dict[int, int]:
        """Return, by position, how much of a call's time may have been waiting, if that is significant."""
        doubts = {}
        for places, delay_ns in waited:
            for place in places:
                sent_ns, ended_ns = made[place][4:]
                waits = min(delay_ns + self._pauses.within(sent_ns, ended_ns), ended_ns - sent_ns)
                if waits > FINE_NS:
                    doubts[place] = waits
            if places:
                began_ns, ended_ns = made[places[0]][4], made[places[-1]][5]
                self._note_late(began_ns, delay_ns + self._pauses.within(began_ns, ended_ns))
        return doubts

    def _note_late(self, sent_ns: int, waited_ns: int) -> None:
        """Record the time in which a client of a closed loop sent no requests because it waited."""
        if waited_ns > self._late_ns and not self._open_loop and self._book.second(sent_ns):
            with self._lock:
                self._book.late_ns += waited_ns

    def _settle_sure(self, driver: CallDriver, made: list[Made]) -> None:
        if not made:
            return
        _, measured, items, values, sent, ended = zip(*made, strict=True)
        if (
            CallResult not in set(map(type, values))
            and all(measured)
            and max(map(sub, ended, sent)) <= self._timeout_ns
        ):
            operations = driver.operations(items, values)  # type: ignore[attr-defined]
            answers = Answers(items, values, sent, ended, operations)
            with self._lock:
                if self._book.settle_answers(answers):
                    self._note_life(None, ended[-1])
                    return
        self._settle([self._call_of(driver, call) for call in made])

    def _call_of(self, driver: CallDriver, made: Made, waited_ns: int = 0) -> tuple[Call, CallResult]:
        """Convert a call of `_without_pause` for the record."""
        index, measured, item, answer, sent_ns, ended_ns = made
        call = Call(index, sent_ns, self._clock.measures(sent_ns) if self._clock.by_time else measured, item)
        call.sent_ns, call.ended_ns, call.waited_ns = sent_ns, ended_ns, waited_ns
        if ended_ns - sent_ns > self._timeout_ns:
            return call, self._too_late()
        return call, answer if type(answer) is CallResult else driver.reply(item, answer)  # type: ignore[attr-defined]

    def _too_late(self) -> CallResult:
        return CallResult(error="timeout", detail=f"the answer took more than {self._shape.timeout:g} s")

    def _next(self) -> Call | None:
        if self._open_loop:
            while call := self._due.get():
                if monotonic_ns() < self._clock.stop_ns + self._timeout_ns and not self._book.stopped:
                    with self._lock:
                        self._begin(call)
                    return call
                with self._lock:  # the load ended long ago, and requests are still queued
                    self._book.never_sent += call.measured
            return None
        now = monotonic_ns()
        if now >= self._clock.stop_ns:
            return None
        call = Call(self._clock.index(), 0, self._clock.measures(now), None)
        if not call.measured and now >= self._clock.stop_ns:  # another thread has taken the last one
            return None
        with self._lock:
            self._begin(call)
        return call

    def _begin(self, call: Call) -> None:
        call.item = self._source.take(call.index).item
        self._in_flight += 1
        if self._in_flight > self._book.most_in_flight:
            self._book.most_in_flight = self._in_flight

    def _make_call(self, driver: CallDriver, call: Call, delay: RunDelay) -> CallResult:
        delay.look()
        sent_ns = call.sent_ns = monotonic_ns()
        try:
            reply = driver.call(call.item)
        except Exception as problem:  # noqa: BLE001 - a driver names what it knows; nothing else ends the load
            reply = _failed(problem)
        call.ended_ns = monotonic_ns()
        if call.ended_ns - sent_ns > FINE_NS:  # otherwise it can't have waited long
            call.waited_ns = delay.look()
            self._ring(call.ended_ns)
        if call.ended_ns - sent_ns > self._timeout_ns:
            reply = self._too_late()
        with self._lock:
            self._note_life(reply.error, call.ended_ns)
            self._in_flight -= 1
            self._pending -= 1
            self._book.calls += 1
            self._book.broken += 1  # its thread slept before the call
            if self._source.needs_replies:
                self._source.answered(call.item, reply)
        call.due_ns = call.due_ns or sent_ns
        if not self._open_loop and (self._think_s or reply.error is not None):
            sleep(self._think_s if reply.error is None else max(self._think_s, _BACK_OFF_S))
        return reply

    def _settle(self, ended: list[tuple[Call, CallResult]]) -> None:
        if not ended:
            return
        with self._lock:
            self._book.wrote_many([call for call, _ in ended])
            self._book.settle_many(ended)
            if ended[-1][1].error is None:
                self._note_life(None, ended[-1][0].ended_ns)
        ended.clear()

    def _note_life(self, error: str | None, now: int) -> None:
        """Record how the last call of this thread ended; failures other than connection errors prove nothing."""
        client = threading.get_ident()
        if error in CONNECTING:
            self._cut.add(client)
            self._cut_ns = now
        elif error is None:
            self._cut.discard(client)
            self._good_ns = max(self._good_ns, now)

    def _look_for_life(self, now: int) -> None:
        """Give up on a server that has been unreachable for seconds, unless a thread with a connection still waits."""
        if now - self._good_ns < _DEAD_AFTER_NS or now - self._cut_ns > _SECOND_NS or self._in_flight > len(self._cut):
            return
        self._book.stop_code = "server_gone"
        self._book.stopped = f"the server has not taken a connection for {_DEAD_AFTER_NS / 1e9:g} s"
        self._book.ended_early = True
        self._clock.stop_ns = min(self._clock.stop_ns, now)

    def _watch_over(self) -> None:
        self._watch.begin()
        try:
            self._keep_seconds()
        finally:
            self._watch.end()

    def _keep_seconds(self) -> None:
        """Tick: record how late this process wakes, how many calls are in flight, and when the window opens and
        ends."""
        clock, book, watch = self._clock, self._book, self._watch
        opened, ended, last_row = False, False, -1
        due = monotonic_ns() + TICK_NS
        while not self._over.is_set():
            rung_ns = watch.hear(due)
            now, late_ns = watch.woke(due, rung_ns, alone=len(self._threads) < 2)
            if opened and late_ns is not None:
                book.waits[bool(rung_ns)].add(late_ns)
            if rung_ns:
                continue
            if not opened and now >= clock.window_ns:
                clock.opened(now)
                opened = True
            if not ended and now >= clock.end_ns:
                book.cpu_all_ns, book.cpu_share = clock.cpu_ns(), clock.cpu_share()
                ended = True
            second = (now - clock.window_ns) // _SECOND_NS
            with self._lock:
                self._look_for_life(now)
                if opened:
                    book.loop_lag.add(now - due)
                book.beat(now, self._in_flight)
                if second != last_row and (row := book.second(now - _SECOND_NS)):
                    row.in_flight = self._in_flight
                    book.flush()
                last_row = second
            due = monotonic_ns() + TICK_NS


def _failed(problem: Exception) -> CallResult:
    if isinstance(problem, CallFailed):
        return CallResult(error=problem.kind, detail=problem.detail)
    return CallResult(error="client", detail=_shown(problem))


def _shown(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _sleep_until(when_ns: int) -> None:
    while (left := when_ns - monotonic_ns()) > 0:
        sleep(left / _SECOND_NS)
