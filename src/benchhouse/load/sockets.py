"""Generates load through HTTP connections on the reactor, for drivers of HTTP/1.1."""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from time import monotonic_ns

from benchhouse.load.endpoint import EndpointStats, HttpEndpoint
from benchhouse.load.http import HttpConnection
from benchhouse.load.load_record import Call, LoadRecord, SendSchedule
from benchhouse.load.poller import PythonPoller
from benchhouse.load.protocols.calls import CONNECTING, CallResult, Exchange, HttpDriver
from benchhouse.load.reactor import Reactor
from benchhouse.load.shape import Shape
from benchhouse.load.source import RequestSource
from benchhouse.load.streams import ValueStream
from benchhouse.load.traces import Traces

_SECOND_NS = 1_000_000_000
_TICK_NS = 20_000_000
_PREOPEN_LIMIT_NS = 10 * _SECOND_NS
_MOST_CONNECTING = 256  # at a time: more may not fit into a server's backlog, and be retried a second later
_RAMP_SHARE = 0.5  # of the warm-up, during which the clients of a closed loop start one after the other
_BACK_OFF_NS = 50_000_000  # of a client that failed: do not flood a server in trouble
_DEAD_AFTER_NS = 3 * _SECOND_NS
_REFUSAL = ("http_400", "http_401", "http_403", "http_404", "http_405", "http_422", "http_501", "malformed", "redirect")
_MOST_REFUSALS = 20  # without a good answer; after that none is expected
_AT_A_TIME = 32  # answers that are recorded together
_MOST_EARLY_NS = 400_000
_EARLY_SHARE = 0.2  # of the mean gap between two requests: at most this share of a core is spent on being on time


class SocketLoad:
    """One process's share of a load. `prepare` connects; `run` starts the load at the clock's edge and drains it."""

    def __init__(
        self,
        driver: HttpDriver,
        source: RequestSource,
        shape: Shape,
        book: LoadRecord,
        endpoints: Sequence[HttpEndpoint],
    ) -> None:
        self._driver, self._source, self._shape, self._book = driver, source, shape, book
        self._reactor = Reactor(_early_ns(shape))
        book.poller = "python" if isinstance(self._reactor.poller, PythonPoller) else "compiled"
        self._endpoints = cycle(endpoints)
        self._count = len(endpoints)
        if self._count > 1:
            book.places = {endpoint.url: EndpointStats() for endpoint in endpoints}
        self._idle: deque[HttpConnection] = deque()
        # With one server, the connection that was used last is the warmest; several servers take turns.
        self._next_idle = self._idle.popleft if self._count > 1 else self._idle.pop
        self._active: dict[HttpConnection, Call] = {}  # oldest first
        self._waiting: deque[Call] = deque()  # due, but without a connection
        self._clients = 0  # clients of a closed loop that have not retired
        self._due: Iterator[int] = iter(())
        self._due_is_over = False
        self._good_ns = 0  # end of the last successful request
        self._unconnected = 0  # requests since then that found no connection
        self._refused = 0  # refusals since the start of the load; -1 after a good answer
        self._refusal = ""  # the last refusal
        self._ticks = 0
        # after a time in which this process did not run: answers may be waiting in the sockets
        self._reads_first = False
        self._timeout_ns = round(shape.timeout * _SECOND_NS)
        self._late_ns = round(shape.error_limit * _SECOND_NS)  # limit for the time from an answer to the next request
        self._open_loop, self._think_ns = shape.open_loop, round(shape.think_time * _SECOND_NS)
        self._in_bulk = hasattr(book.tally, "add_many")
        self._booked_late = self._in_bulk and not shape.open_loop  # sends are recorded with their answers
        self._ended: list[tuple[Call, CallResult]] = []  # not recorded yet
        self.traces: Traces | None = None  # if set, stores a row for each request

    def prepare(self, connections: int) -> str:
        """Open connections before any time is measured, equally many per endpoint. Return the problem if none could be
        opened, otherwise an empty text."""
        opened = [self._connection() for _ in range(-(-connections // self._count) * self._count)]
        waiting = deque(opened)
        connecting: list[HttpConnection] = []
        deadline = monotonic_ns() + _PREOPEN_LIMIT_NS

        def look(now: int) -> None:
            nonlocal connecting
            connecting = [item for item in connecting if item.open and not item.ready]
            while waiting and len(connecting) < _MOST_CONNECTING:
                connecting.append(waiting.popleft())
                connecting[-1].connect()
            if not connecting or now > deadline:
                self._reactor.stop()
            else:
                self._reactor.at(monotonic_ns() + 1_000_000, look)

        self._reactor.at(0, look)
        self._reactor.run()
        self._idle.extend(item for item in opened if item.ready)
        self._book.kernel_stamps = all(item.kernel_stamps for item in self._idle)
        for item in opened:
            if not item.ready:
                item.close()
                if item.place is not None:
                    item.place.refuse(item.last_error or "no connection within 10 s")
        return "" if self._idle else opened[0].last_error or "refused: no connection within 10 s"

    def run(self, clock: SendSchedule) -> None:
        self._clock = clock
        self._good_ns = clock.begin_ns
        self._book.start_ns, self._book.end_ns = clock.window_ns, clock.end_ns
        reactor = self._reactor
        reactor.at(clock.begin_ns, self._tick)
        reactor.at(clock.window_ns, clock.opened)
        reactor.at(clock.begin_ns, self._begin)
        if clock.end_ns < clock.stop_ns or self._shape.window_s:
            reactor.at(clock.end_ns, self._window_over)
        reactor.at(clock.window_ns + _SECOND_NS, self._second_over)
        reactor.run()
        if not self._book.cpu_share:
            self._window_over(0)
        while reactor.later:
            work, arguments = reactor.later.popleft()
            work(*arguments)
        self._settle_all()
        if self._shape.window_s is None:
            self._book.cpu_all_ns = clock.cpu_ns()
        for connection in [*self._idle, *self._active]:
            connection.close()
        reactor.close()

    # offering

    def _begin(self, _: int) -> None:
        if self._shape.open_loop:
            stream = self._shape.law.due(self._shape.rps, self._source.seed, self._shape.schedule_s)
            clock = self._clock
            self._due = (at for number, at in enumerate(stream) if number % clock.shards == clock.shard)
            self._book.start_late_ns = monotonic_ns() - clock.begin_ns
            self._plan_next()
            return
        clock, share = self._clock, self._shape.concurrency or 1
        self._clients = share // clock.shards + (clock.shard < share % clock.shards)
        ramp_ns = _RAMP_SHARE * (clock.window_ns - clock.begin_ns)
        self._next_of_client(clock.begin_ns)
        self._book.start_late_ns = monotonic_ns() - clock.begin_ns
        for number in range(1, self._clients):  # starting all at once would keep them in step, in bursts
            place = (number * clock.shards + clock.shard) / share
            self._reactor.at(clock.begin_ns + round(ramp_ns * place), self._next_of_client)

    def _plan_next(self) -> None:
        due = next(self._due, None)
        at = self._clock.stop_ns if due is None else self._clock.begin_ns + due
        self._book.ended_early |= due is None
        if at >= self._clock.stop_ns:
            self._due_is_over = True
            self._stop_when_empty()
        else:
            self._reactor.at(at, self._arrive)

    def _arrive(self, due_ns: int) -> None:
        if self._due_is_over:
            return
        call = Call(self._clock.index(), due_ns, self._clock.measures(due_ns), None)
        if connection := self._kept():
            self._send(connection, call)
        elif len(self._active) < max(self._shape.max_in_flight // self._clock.shards, 1):
            self._send(self._connection(late=True), call)
        else:
            call.queued = True
            self._waiting.append(call)
        self._plan_next()

    def _next_of_client(self, due_ns: int) -> None:
        """Send the next request of a client of a closed loop, or retire the client."""
        now = monotonic_ns()
        if self._clock.window_ns <= now < self._clock.end_ns and now - due_ns > self._late_ns:
            self._book.late_ns += now - max(due_ns, self._clock.window_ns)
        if now >= self._clock.stop_ns or self._book.stopped:
            self._clients -= 1
            self._stop_when_empty()
            return
        connection = self._kept() or self._connection(late=True)
        self._send(connection, Call(self._clock.index(), 0, self._clock.measures(now), None))

    def _send_waiting(self, _: int) -> None:
        if self._waiting:
            self._send(self._kept() or self._connection(late=True), self._waiting.popleft())

    def _send(self, connection: HttpConnection, call: Call) -> None:
        planned = self._source.take(call.index)
        call.item = planned.item
        self._active[connection] = call
        data = planned.data if self.traces is None else self.traces.put(planned.data, call.index)
        connection.send(data, planned.pieces, planned.sink)
        call.sent_ns = connection.exchange.sent_ns
        if not self._open_loop:
            call.due_ns = call.sent_ns
        if not self._booked_late:
            self._book.wrote(call)
        if len(self._active) > self._book.most_in_flight:
            self._book.most_in_flight = len(self._active)

    def _kept(self) -> HttpConnection | None:
        """Return a connection that waits for a request, discarding those that the server has closed; None if there is
        none."""
        while self._idle:
            if (connection := self._next_idle()).open:
                return connection
        return None

    def _connection(self, late: bool = False) -> HttpConnection:
        self._book.connections += 1
        self._book.connections_late += late
        endpoint = next(self._endpoints)
        connection = HttpConnection(self._reactor, endpoint, self._done)
        if self._count > 1:
            connection.place = self._book.places[endpoint.url]
            connection.place.connections += 1
        return connection

    # what comes back

    def _done(self, connection: HttpConnection, exchange: Exchange, error: str | None, detail: str) -> None:
        call = self._active.pop(connection)
        if error == "stale" and not call.resent:
            call.resent = True
            self._book.resent += 1
            if self._booked_late:
                call.sent_ns = call.due_ns = exchange.sent_ns
                self._book.wrote(call)
            self._active[connection] = call
            connection.resend()
            return
        call.ended_ns = exchange.ended_ns
        call.sent_ns, call.sending_ns = exchange.sent_ns, exchange.sending_ns
        call.due_ns = call.due_ns or call.sent_ns  # it may have failed before `send` returned
        self._book.read_lag.add(connection.read_lag_ns)
        outcome = error
        if error is None and exchange.ended_ns - exchange.sent_ns > self._timeout_ns:  # between two ticks
            outcome, detail = "timeout", f"the answer took more than {self._shape.timeout:g} s"
        if self._source.needs_replies:
            self._settle(call, exchange, outcome, detail, connection.place)
        else:
            self._reactor.later.append((self._settle, (call, exchange, outcome, detail, connection.place)))
        if error in CONNECTING:
            self._unconnected += 1
            if connection.place is not None:
                connection.place.refuse(connection.last_error)
        elif error is None:
            self._good_ns, self._unconnected = exchange.ended_ns, 0
            if connection.open:
                self._idle.append(connection)
        if self._open_loop:
            if self._waiting:
                self._waiting[0].follow(call)
            if self._waiting and error is None:
                self._send_waiting(0)
            elif self._waiting:  # from the loop, because the next one may fail at once, too
                self._reactor.at(exchange.ended_ns, self._send_waiting)
            elif self._due_is_over:
                self._stop_when_empty()
            return
        pause_ns = self._think_ns
        if error is not None or exchange.status >= 400:
            pause_ns = max(pause_ns, _BACK_OFF_NS)
        if pause_ns:
            self._reactor.at(exchange.ended_ns + pause_ns, self._next_of_client)
        else:
            self._next_of_client(exchange.ended_ns)

    def _settle(
        self, call: Call, exchange: Exchange, error: str | None, detail: str, place: EndpointStats | None
    ) -> None:
        if error is not None:
            reply = CallResult(error="reset" if error == "stale" else error, detail=detail)
        else:
            try:
                reply = self._driver.read(exchange)
            except Exception as problem:  # noqa: BLE001 - a driver's bug is told, and ends nothing
                reply = CallResult(error="client", detail=f"{type(problem).__name__}: {problem}")
        self._source.answered(call.item, reply)
        if place is not None:
            place.note(reply.error, call.ended_ns)
        if reply.error is None:
            self._refused = -1
        elif self._refused >= 0 and reply.error.startswith(_REFUSAL):
            self._refused, self._refusal = self._refused + 1, f"{reply.error}: {reply.detail}"
        if not self._in_bulk:
            self._book.settle(call, reply)
            return
        self._ended.append((call, reply))
        if len(self._ended) >= _AT_A_TIME:
            self._settle_all()

    def _settle_all(self) -> None:
        if self._ended:
            if self._booked_late:
                # resent calls were recorded then
                self._book.wrote_many([call for call, _ in self._ended if not call.resent])
            self._book.settle_many(self._ended)
            self._ended.clear()

    # time passing

    def _tick(self, when: int) -> None:
        now = monotonic_ns()
        self._ticks += 1
        if now >= self._clock.window_ns:
            self._book.loop_lag.add(now - when)
        self._reads_first = now - when > _TICK_NS and not self._reads_first
        if not self._reads_first:
            self._fail_overdue(now)
        self._settle_all()
        self._book.beat(now, len(self._active))
        if self._ticks % 5 == 0:  # in small steps: counting a second's values at once would be a pause
            for stream in self._book.streams():
                self._reactor.later.append((self._count_some, (stream,)))
        if self._ticks % 50 == 0:
            self._reactor.compare_clocks()
            self._look_for_life(now)
        if self._waiting and now > self._clock.stop_ns + self._timeout_ns:
            self._book.never_sent += sum(call.measured for call in self._waiting)
            self._waiting.clear()
        self._reactor.at(now + _TICK_NS if self._reads_first else max(when + _TICK_NS, now), self._tick)

    def _fail_overdue(self, now: int) -> None:
        while oldest := next(iter(self._active), None):
            if now - self._active[oldest].sent_ns < self._timeout_ns:
                break
            oldest.fail("timeout", f"no complete answer within {self._shape.timeout:g} s")

    def _count_some(self, stream: ValueStream) -> None:
        if stream.settle_some():
            self._reactor.later.append((self._count_some, (stream,)))

    def _second_over(self, when: int) -> None:
        if row := self._book.second(when - 1):
            row.in_flight = len(self._active)
        if when < self._clock.end_ns:
            self._reactor.at(when + _SECOND_NS, self._second_over)

    def _look_for_life(self, now: int) -> None:
        """Give up on a server that refuses every connection for seconds, or every request."""
        if self._refused > _MOST_REFUSALS and now - self._clock.begin_ns > _DEAD_AFTER_NS:
            why = f"every one of the first {self._refused} requests was refused ({self._refusal})"
            self._abandon(now, "all_refused", why)
        if self._unconnected and now - self._good_ns > _DEAD_AFTER_NS and not any(item.ready for item in self._active):
            self._abandon(now, "server_gone", f"the server has not taken a connection for {_DEAD_AFTER_NS / 1e9:g} s")

    def _abandon(self, now: int, code: str, why: str) -> None:
        self._book.stop_code, self._book.stopped = code, why
        self._due_is_over = self._book.ended_early = True
        self._book.never_sent += sum(call.measured for call in self._waiting)
        self._waiting.clear()
        self._clock.stop_ns = min(self._clock.stop_ns, now)
        self._stop_when_empty()

    def _window_over(self, _: int) -> None:
        self._book.cpu_all_ns = self._clock.cpu_ns()
        self._book.cpu_share = self._clock.cpu_share(self._reactor.spun_ns)

    def _stop_when_empty(self) -> None:
        waiting = self._active or self._waiting
        if not waiting and (self._due_is_over if self._shape.open_loop else self._clients <= 0):
            self._reactor.stop()


def _early_ns(shape: Shape) -> int:
    """Return how long before a request of an open loop is due the process must be awake: a sleeping core wakes late."""
    if not shape.open_loop:
        return 0
    rate = (shape.rps or 1_000) / shape.shards
    return round(min(_MOST_EARLY_NS, _EARLY_SHARE * _SECOND_NS / rate))
