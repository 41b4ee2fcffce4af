"""The record that one load process keeps of its calls, and how the records of several processes are merged."""

import heapq
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns, process_time_ns
from typing import Any, NamedTuple, Protocol

from pydantic import Field

from benchhouse.load.endpoint import EndpointStats
from benchhouse.load.protocols.calls import CallResult
from benchhouse.load.shape import Shape
from benchhouse.load.streams import ValueStream, Waits
from benchhouse.schema.model import Model

_SECOND_NS = 1_000_000_000
_STAMPS_KEPT = 200_000  # send times kept to test their distribution
_NEVER = 1 << 62


class Call:
    """One request, as the engine sees it."""

    __slots__ = (
        "due_ns", "ended_ns", "free_ns", "index", "inherited_ns", "item", "measured", "queued", "resent", "sending_ns",
        "sent_ns", "waited_ns",
    )  # fmt: skip

    def __init__(self, index: int, due_ns: int, measured: bool, item: Any) -> None:
        self.index, self.due_ns, self.measured, self.item = index, due_ns, measured, item
        self.sent_ns = self.ended_ns = 0
        self.sending_ns = 0  # time that handing it to the kernel took
        self.waited_ns = 0  # threads only: how long, during the call, the thread may have been ready to run but did not
        self.resent = False
        self.queued = False  # whether it came due while the maximum number of requests was in flight
        self.free_ns = self.inherited_ns = 0  # for a queued request; see `follow`

    def follow(self, before: "Call") -> None:
        """Record that this call was queued until `before` ended, so that the delay of `before` also delays this
        call."""
        self.free_ns = before.ended_ns
        self.inherited_ns = before.late_ns + before.waited_ns

    @property
    def late_ns(self) -> int:
        """How much later the request was sent than possible. Waiting for a free slot does not count as client
        lateness."""
        return max(self.sent_ns - max(self.due_ns, self.free_ns), 0) + self.inherited_ns


class Answers(NamedTuple):
    """Good answers to measured calls of a closed loop, sent when due; in columns because one object each costs more."""

    items: Sequence[Any]
    values: Sequence[Any]  # the contents of the answers
    sent_ns: Sequence[int]
    ended_ns: Sequence[int]
    operations: float  # sum over all answers


class Tally(Protocol):
    """What an experiment collects from the replies; one object per load process, merged at the end."""

    def add(self, call: Call, reply: CallResult, start_ns: int, end_ns: int) -> int:
        """Collect what matters. Return a bit mask of the objectives that this request missed; the window is start to
        end."""

    def merge(self, other: Any) -> None: ...

    def streams(self) -> Iterable[ValueStream]:
        """Return the streams whose values have not been counted yet."""


class Lost(Model):
    """A load process that died, with its last heartbeat. Everything that it had counted is lost."""

    shard: int
    how: str
    at_s: float | None = Field(None, description="Second of the load of its last beat; null before the start.")
    answered: int = Field(0, description="Measured requests that it had good answers to.")
    failed: int = Field(0, description="Measured requests that had failed.")
    in_flight: int = Field(0, description="Requests whose answers it was waiting for, at most 20 ms before it died.")
    measured: bool = Field(False, description="Whether that was in the measured window.")

    def __str__(self) -> str:
        named = f"load process {self.shard} {self.how}"
        if self.at_s is None:
            return f"{named} before the start"
        return (
            f"{named} {self.at_s:.1f} s after the start: {self.answered} good answers are gone with it, "
            f"{self.in_flight} requests were in flight"
        )


@dataclass
class Second:
    """What happened in one second of the measured window, and the results of the requests that were due in it."""

    sent: int = 0
    completed: int = 0
    errors: int = 0
    in_flight: int = 0  # at the end of the second
    due: int = 0
    good: int = 0
    missed: list[int] = field(default_factory=list)  # per objective


@dataclass
class LoadRecord:
    """Counts and times of one load; of measured requests only, unless stated otherwise."""

    tally: Any
    objectives: int = 0
    start_late_ns: int = 0  # from the common start edge to the first send, for the load process that started last
    start_ns: int = 0  # start of the window
    end_ns: int = _NEVER
    sent: int = 0
    succeeded: int = 0
    unmeasured: int = 0
    completed_in_window: int = 0  # successful answers that ended in the window, measured or not
    answered: float = 0.0  # the same, each weighted by the share of its time (sent to ended) inside the window
    late_ns: int = 0  # closed loop: total time in which its clients had an answer and sent nothing
    drains: int = 0  # closed loop with a fixed number of requests: the maximum in flight when the last is sent
    last_sent_ns: int = 0  # last send of a measured request
    rate_to_last_send: float = 0.0  # successful answers per second up to the last send, of all processes; see `close`
    never_sent: int = 0
    sent_late: int = 0  # sent after the end of the window
    first_ended_ns: int = _NEVER  # first end of a measured request
    last_ended_ns: int = 0
    resent: int = 0  # requests sent again because the server had closed a kept connection
    errors: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)  # the first detail of each kind of error
    seconds: dict[int, Second] = field(default_factory=dict)
    lag: ValueStream = field(default_factory=ValueStream)  # delays between due and sent
    loop_lag: ValueStream = field(default_factory=ValueStream)  # delays of ticks
    read_lag: ValueStream = field(default_factory=ValueStream)  # delays between the kernel's timestamp and ours
    # For threads: samples of the wake-up delay without the wait for a core; woken by a tick, and by the end of a call.
    waits: tuple[ValueStream, ValueStream] = field(default_factory=lambda: (ValueStream(), ValueStream()))
    calls: int = 0  # of threads, measured or not
    broken: int = 0  # upper bound of the calls in which a thread slept or lost its core
    due_times: "array[int]" = field(default_factory=lambda: array("q"))
    sent_times: "array[int]" = field(default_factory=lambda: array("q"))
    connections: int = 0  # connections opened in total
    connections_late: int = 0  # connections opened after the load had started
    most_in_flight: int = 0
    poller: str = ""  # name of the poller that read the sockets; empty if there were no sockets
    kernel_stamps: bool = False  # whether every read of a socket had a kernel timestamp
    cpu_share: float = 0.0  # CPU use of the busiest load process while the window was open, as a share of one core
    cpu_all_ns: int = 0  # CPU time of all load processes together since the window opened
    peak_mb: float = 0.0  # peak memory of the largest load process
    processes: int = 1
    chosen: str = ""  # why the engine chose this number of processes; empty if it did not choose
    lost: list[Lost] = field(default_factory=list)  # load processes that died
    places: dict[str, EndpointStats] = field(default_factory=dict)  # by address; empty for a single endpoint
    stopped: str = ""  # why the load was aborted
    stop_code: str = ""  # the same reason as a code
    ended_early: bool = False  # whether the load ended before the window: it was aborted, or the schedule was exhausted
    spool: Any = None  # for `records`, during the load
    pulse: "Callable[[LoadRecord, int, int], None] | None" = None  # for shards, during the load; see `beat`
    _last: list[tuple[int, int]] = field(default_factory=list)  # a heap of (ended, sent)

    def beat(self, now_ns: int, in_flight: int) -> None:
        """Report a heartbeat every few hundredths of a second, so that the last one is known if the process dies."""
        if self.pulse is not None:
            self.pulse(self, now_ns, in_flight)

    def lose(self, lost: Lost) -> None:
        """Add a load process that died: its measured requests that were in flight count as failed."""
        self.lost.append(lost)
        if lost.measured and lost.in_flight:
            self.sent += lost.in_flight
            self.errors["lost"] += lost.in_flight
            self.details.setdefault("lost", str(lost))

    def second(self, at_ns: int) -> Second | None:
        """Return the row of that moment; None outside of the window."""
        if not self.start_ns <= at_ns < self.end_ns:
            return None
        return self._row((at_ns - self.start_ns) // _SECOND_NS)

    def _row(self, number: int) -> Second:
        if number not in self.seconds:
            self.seconds[number] = Second(missed=[0] * self.objectives)
        return self.seconds[number]

    def wrote_many(self, calls: list[Call]) -> None:
        """Do the same as `wrote` for each call; much cheaper for measured requests of a closed loop."""
        sent = [call.sent_ns for call in calls]
        on_time = sent and self.start_ns <= min(sent) and max(sent) < self.end_ns
        if on_time and all(call.measured and call.due_ns == call.sent_ns for call in calls):
            self._sent_on_time(sent)
        else:
            for call in calls:
                self.wrote(call)

    def _sent_on_time(self, sent: Sequence[int]) -> None:
        """Record measured requests that were sent when due, inside the window."""
        self.sent += len(sent)
        self.last_sent_ns = max(self.last_sent_ns, max(sent))
        self.lag.repeat(0, len(sent))
        for second, number in self._by_second(sent):
            self._row(second).sent += number

    def _by_second(self, stamps: Sequence[int]) -> Iterable[tuple[int, int]]:
        """Return each second of the window that contains stamps, with their number."""
        first, last = (min(stamps) - self.start_ns) // _SECOND_NS, (max(stamps) - self.start_ns) // _SECOND_NS
        if first == last:
            return ((first, len(stamps)),)
        return Counter([(stamp - self.start_ns) // _SECOND_NS for stamp in stamps]).items()

    def settle_many(self, ended: list[tuple[Call, CallResult]]) -> None:
        """Do the same as `settle` for each call; much cheaper if all succeeded inside the window."""
        due, ends = [call.due_ns for call, _ in ended], [call.ended_ns for call, _ in ended]
        in_bulk = self._takes("add_many", due, ends)
        if in_bulk and all(call.measured and reply.error is None for call, reply in ended):
            self.tally.add_many(ended)
            self._ended_well(due, [call.sent_ns for call, _ in ended] if self.drains else due, ends)
        else:
            for call, reply in ended:
                self.settle(call, reply)

    def settle_answers(self, answers: Answers) -> bool:
        """Do the same as `wrote` and `settle` for each. Return False, with nothing recorded, if they need single
        handling."""
        sent, ends = answers.sent_ns, answers.ended_ns
        if not self._takes("add_answers", sent, ends):
            return False
        self.tally.add_answers(answers)
        self._sent_on_time(sent)
        self._ended_well(sent, sent, ends)
        return True

    def _takes(self, method: str, due: Sequence[int], ends: Sequence[int]) -> bool:
        """Whether calls may be counted together: all are in the window, and nothing is recorded per call."""
        single = self.spool is not None or self.objectives or not hasattr(self.tally, method)
        return not single and self.start_ns <= min(due) and max(ends) < self.end_ns

    def _ended_well(self, due: Sequence[int], sent: Sequence[int], ends: Sequence[int]) -> None:
        """Record successful answers to measured requests whose due times and ends are in the window."""
        count = len(ends)
        self.succeeded += count
        self.completed_in_window += count
        self.answered += count
        if self.drains:
            self._keep_last(zip(ends, sent, strict=True))
        self.first_ended_ns = min(self.first_ended_ns, min(ends))
        self.last_ended_ns = max(self.last_ended_ns, max(ends))
        for second, number in self._by_second(due):
            row = self._row(second)
            row.due += number
            row.good += number
        for second, number in self._by_second(ends):
            self._row(second).completed += number

    def wrote(self, call: Call) -> None:
        """Record that a request was sent."""
        if not call.measured:
            self.unmeasured += 1
        else:
            self.sent += 1
            self.sent_late += call.sent_ns >= self.end_ns
            self.last_sent_ns = max(self.last_sent_ns, call.sent_ns)
            self.lag.add(call.sent_ns - call.due_ns)
            if len(self.sent_times) < _STAMPS_KEPT:
                self.due_times.append(call.due_ns)
                self.sent_times.append(call.sent_ns)
        if row := self.second(call.sent_ns):
            row.sent += 1

    def settle(self, call: Call, reply: CallResult) -> None:
        """Record that a request ended, successfully or not."""
        missed = self.tally.add(call, reply, self.start_ns, self.end_ns)
        if self.spool:
            self.spool.add(call, reply, self.start_ns)
        if row := self.second(call.ended_ns):
            row.completed += reply.error is None
            row.errors += reply.error is not None
            self.completed_in_window += reply.error is None
        if reply.error is None:
            took = call.ended_ns - call.sent_ns
            inside = min(call.ended_ns, self.end_ns) - max(call.sent_ns, self.start_ns)
            self.answered += max(inside, 0) / took if took > 0 else self.start_ns <= call.ended_ns < self.end_ns
        if not call.measured:
            return
        self.first_ended_ns = min(self.first_ended_ns, call.ended_ns)
        self.last_ended_ns = max(self.last_ended_ns, call.ended_ns)
        if reply.error is None:
            self.succeeded += 1
            if self.drains:
                self._keep_last([(call.ended_ns, call.sent_ns)])
        else:
            self.errors[reply.error] += 1
            self.details.setdefault(reply.error, reply.detail)
        if row := self.second(call.due_ns):
            row.due += 1
            row.good += not missed and reply.error is None
            for number in range(self.objectives):
                row.missed[number] += missed >> number & 1

    @property
    def unseen(self) -> Waits | None:
        """The uncertainty in the times of blocking calls; None if there were no blocking calls."""
        samples = [stream.histogram for stream in self.waits]
        return Waits(samples, min(self.broken / self.calls, 1.0)) if self.calls else None

    def streams(self) -> Iterable[ValueStream]:
        return (self.lag, self.loop_lag, self.read_lag, *self.waits, *self.tally.streams())

    def _keep_last(self, answers: Iterable[tuple[int, int]]) -> None:
        """Keep the successful answers that ended last; they include all that can have ended after the last send."""
        for ended in answers:
            (heapq.heappush if len(self._last) < self.drains else heapq.heappushpop)(self._last, ended)

    def close(self) -> None:
        """Compute the rate of successful answers at full concurrency, once the load of this process is over.

        A closed loop has full concurrency until it sends its last request; after that, fewer and fewer requests are in
        flight. So only the time up to the last send counts, and a later answer counts by the share of its time before
        that.
        """
        at = self.last_sent_ns
        if self.drains and at > self.start_ns:
            later = [(ended - at) / (ended - max(sent, self.start_ns)) for ended, sent in self._last if ended > at]
            self.rate_to_last_send = (self.succeeded - sum(later)) / (at - self.start_ns) * _SECOND_NS
            if len(later) > self.succeeded / 2:  # concurrency was hardly ever full
                self.rate_to_last_send = 0.0
        self._last.clear()

    def flush(self) -> None:
        """Move the collected values into histograms, so that memory does not grow with the number of requests."""
        for stream in self.streams():
            _ = stream.histogram

    @property
    def window_s(self) -> float:
        """Length of the measured window; it ends with the last request if all requests were over earlier."""
        end_ns = self.end_ns
        if end_ns == _NEVER or self.ended_early:
            end_ns = min(end_ns, max(self.last_ended_ns, self.start_ns))
        return (end_ns - self.start_ns) / _SECOND_NS

    def answers_per_s(self, *, open_loop: bool) -> float:
        """Return the successful answers per second of a steady load.

        If the window is defined by a duration, each answer counts by the share of its time inside the window: counting
        ends alone would jump by a whole wave of equally long requests. If it is defined by a number of requests, a
        closed loop counts up to its last send (`close`) and an open loop from the first end to the last, because the
        server was not idle while the last request took its time.
        """
        if self.end_ns != _NEVER and not self.ended_early:
            return self.answered / self.window_s
        if open_loop and self.succeeded > 1 and self.last_ended_ns > self.first_ended_ns:
            return (self.succeeded - 1) / (self.last_ended_ns - self.first_ended_ns) * _SECOND_NS
        if self.rate_to_last_send:
            return self.rate_to_last_send
        return self.succeeded / self.window_s if self.window_s else 0.0

    def good_share(self) -> float:
        """Return the share of the successful answers that met every objective."""
        return sum(second.good for second in self.seconds.values()) / self.succeeded if self.succeeded else 0.0

    @property
    def failed(self) -> int:
        return self.errors.total()

    def shift(self, by_ns: int) -> None:
        """Convert all stamps to another clock."""
        self.start_ns += by_ns
        for name in ("end_ns", "first_ended_ns", "last_sent_ns", "last_ended_ns"):
            if getattr(self, name) not in (0, _NEVER):
                setattr(self, name, getattr(self, name) + by_ns)
        self.due_times = array("q", [stamp + by_ns for stamp in self.due_times])
        self.sent_times = array("q", [stamp + by_ns for stamp in self.sent_times])
        self._last = [(ended + by_ns, sent + by_ns) for ended, sent in self._last]

    def merge(self, other: "LoadRecord") -> None:
        """Merge the record of another load process into this one, exactly."""
        self.tally.merge(other.tally)
        self.first_ended_ns = min(self.first_ended_ns, other.first_ended_ns)
        self.last_ended_ns = max(self.last_ended_ns, other.last_ended_ns)
        for name in ("sent", "succeeded", "unmeasured", "completed_in_window", "answered", "never_sent", "sent_late",
                     "resent", "connections", "connections_late", "most_in_flight", "cpu_all_ns", "late_ns", "calls",
                     "broken", "processes", "rate_to_last_send"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.update(other.errors)
        self.details = other.details | self.details
        for number, theirs in other.seconds.items():
            ours = self._row(number)
            for name in ("sent", "completed", "errors", "in_flight", "due", "good"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            ours.missed = [a + b for a, b in zip(ours.missed, theirs.missed, strict=True)]
        for stream in ("lag", "loop_lag", "read_lag"):
            getattr(self, stream).merge(getattr(other, stream))
        for waits, others in zip(self.waits, other.waits, strict=True):
            waits.merge(others)
        self.due_times.extend(other.due_times)
        self.sent_times.extend(other.sent_times)
        self.kernel_stamps &= other.kernel_stamps
        self.cpu_share = max(self.cpu_share, other.cpu_share)
        self.peak_mb = max(self.peak_mb, other.peak_mb)
        self.start_late_ns = max(self.start_late_ns, other.start_late_ns)
        self.lost += other.lost
        for url, place in other.places.items():
            self.places.setdefault(url, EndpointStats()).merge(place)
        self.stopped, self.stop_code = self.stopped or other.stopped, self.stop_code or other.stop_code
        self.ended_early |= other.ended_early


class SendSchedule:
    """When one load process may send: the window, and this process's share of the requests."""

    def __init__(self, shape: Shape, start_ns: int, shard: int) -> None:
        self.shard, self.shards = shard, shape.shards
        self.begin_ns = start_ns
        self.window_ns = start_ns + round(shape.warmup * _SECOND_NS)
        self._cooldown_ns = round(shape.cooldown * _SECOND_NS)
        self._share: int | None = None  # of the measured requests
        self.by_time = not shape.requests  # whether `measures` depends only on the time
        self.end_ns = self.stop_ns = _NEVER
        if shape.requests:
            self._share = shape.requests // shape.shards + (shard < shape.requests % shape.shards)
            if not self._share:
                self.stop_ns = self.window_ns
        else:
            assert shape.window_s is not None
            self.end_ns = self.window_ns + round(shape.window_s * _SECOND_NS)
            self.stop_ns = self.end_ns + self._cooldown_ns
        # The number of this process's next request among those of all processes. Both counters are thread-safe.
        self.index: Callable[[], int] = itertools.count(shard, shape.shards).__next__
        self._tickets = itertools.count()
        self._cpu_ns = self._opened_ns = 0

    def measures(self, due_ns: int) -> bool:
        """Whether a request that is due at this time is measured; if so, it counts toward this process's share."""
        if not self.window_ns <= due_ns < self.end_ns:
            return False
        if self._share is None:
            return True
        ticket = next(self._tickets)
        if ticket >= self._share - 1:  # the thread that took the last one may not have recorded it yet
            self.stop_ns = min(self.stop_ns, due_ns + self._cooldown_ns)
        return ticket < self._share

    def opened(self, _: int) -> None:
        self._cpu_ns, self._opened_ns = process_time_ns(), monotonic_ns()

    def cpu_ns(self) -> int:
        """CPU time of this process since the window opened."""
        return process_time_ns() - self._cpu_ns

    def cpu_share(self, idle_ns: int = 0) -> float:
        """CPU time since the window opened as a share of that time, less `idle_ns` that was spent only on waiting."""
        return max(self.cpu_ns() - idle_ns, 1) / max(monotonic_ns() - self._opened_ns, 1)
