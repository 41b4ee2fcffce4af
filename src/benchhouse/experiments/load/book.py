"""Book: what one load process writes down of its calls, and how the books of several become one."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic_ns, process_time_ns
from typing import Any, Protocol

from benchhouse.experiments.load.shape import Shape
from benchhouse.schema.histogram import Histogram
from benchhouse.schema.load import Reply

_SECOND_NS = 1_000_000_000
_STAMPS_KEPT = 200_000  # of send times, for the test of their distribution
_NEVER = 1 << 62


class Call:
    """One request from the engine's side."""

    __slots__ = ("due_ns", "ended_ns", "index", "item", "measured", "resent", "sent_ns")

    def __init__(self, index: int, due_ns: int, measured: bool, item: Any) -> None:
        self.index, self.due_ns, self.measured, self.item = index, due_ns, measured, item
        self.sent_ns = self.ended_ns = 0
        self.resent = False


class Stream:
    """Values on their way into a histogram: a list takes each at once, the histogram many at a time."""

    __slots__ = ("_histogram", "_values", "add")

    def __init__(self) -> None:
        self._histogram = Histogram()
        self._values: list[int] = []
        self.add = self._values.append

    def extend(self, values: Iterable[int]) -> None:
        self._values.extend(values)

    @property
    def histogram(self) -> Histogram:
        """All that was added so far."""
        self._histogram.extend(self._values)
        self._values.clear()
        return self._histogram

    def merge(self, other: "Stream") -> None:
        self.histogram.merge(other.histogram)

    def __reduce__(self) -> Any:
        return _stream, (self.histogram,)


def _stream(histogram: Histogram) -> Stream:
    made = Stream()
    made._histogram = histogram
    return made


class Tally(Protocol):
    """What an experiment keeps of the replies; one in each load process, merged at the end."""

    def add(self, call: Call, reply: Reply, start_ns: int, end_ns: int) -> int:
        """Keep what matters; a bit mask of the objectives that this request missed. The window is from start to end."""
        ...

    def merge(self, other: Any) -> None: ...

    def flush(self) -> None:
        """Called every second or so when there is nothing better to do."""
        ...


@dataclass
class Second:
    """What happened in one second of the measured window, and what became of the requests that were due in it."""

    sent: int = 0
    completed: int = 0
    errors: int = 0
    in_flight: int = 0  # at its end
    due: int = 0
    good: int = 0
    missed: list[int] = field(default_factory=list)  # by objective


@dataclass
class Book:
    """Counts are of measured requests unless said otherwise."""

    tally: Any
    objectives: int = 0
    start_ns: int = 0  # of the window
    end_ns: int = _NEVER
    sent: int = 0
    succeeded: int = 0
    unmeasured: int = 0
    completed_in_window: int = 0  # good answers whose end lies in the window, measured or not
    answered: float = 0.0  # the same, each by the share of its time (sent to ended) that lies in the window
    never_sent: int = 0
    sent_late: int = 0  # after the window had ended
    first_ended_ns: int = _NEVER  # of measured requests
    last_ended_ns: int = 0
    resent: int = 0  # after the server had closed a kept connection
    errors: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)  # the first of each kind
    seconds: dict[int, Second] = field(default_factory=dict)
    lag: "Stream" = field(default_factory=lambda: Stream())  # from due to sent
    loop_lag: "Stream" = field(default_factory=lambda: Stream())  # of ticks
    read_lag: "Stream" = field(default_factory=lambda: Stream())  # from the kernel's stamp to ours
    due_times: "array[int]" = field(default_factory=lambda: array("q"))
    sent_times: "array[int]" = field(default_factory=lambda: array("q"))
    connections: int = 0  # opened, in all
    connections_late: int = 0  # of these, after the load had begun
    most_in_flight: int = 0
    kernel_stamps: bool = False
    cpu_share: float = 0.0  # of one core, by the busiest load process while the window was open
    cpu_all_ns: int = 0  # of all load processes together, since it was opened
    peak_mb: float = 0.0  # of the largest load process
    processes: int = 1
    lost: list[str] = field(default_factory=list)  # load processes that died, and how
    stopped: str = ""  # why the load was given up
    ended_early: bool = False  # before the window did: given up, or the schedule was over
    spool: Any = None  # of `records`, while the load runs

    def second(self, at_ns: int) -> Second | None:
        """The row of that moment; None outside of the window."""
        if not self.start_ns <= at_ns < self.end_ns:
            return None
        number = (at_ns - self.start_ns) // _SECOND_NS
        row = self.seconds.get(number)
        if row is None:
            row = self.seconds[number] = Second(missed=[0] * self.objectives)
        return row

    def wrote(self, call: Call) -> None:
        """A request has been sent."""
        if not call.measured:
            self.unmeasured += 1
        else:
            self.sent += 1
            self.sent_late += call.sent_ns >= self.end_ns
            self.lag.add(call.sent_ns - call.due_ns)
            if len(self.sent_times) < _STAMPS_KEPT:
                self.due_times.append(call.due_ns)
                self.sent_times.append(call.sent_ns)
        if row := self.second(call.sent_ns):
            row.sent += 1

    def settle(self, call: Call, reply: Reply) -> None:
        """A request has come to an end, good or bad."""
        missed = self.tally.add(call, reply, self.start_ns, self.end_ns)
        if self.spool:
            self.spool.add(call, reply, self.start_ns)
        if row := self.second(call.ended_ns):
            row.completed += reply.error is None
            row.errors += reply.error is not None
            self.completed_in_window += reply.error is None
        if reply.error is None:
            self.answered += self._share_in_window(call)
        if not call.measured:
            return
        self.first_ended_ns = min(self.first_ended_ns, call.ended_ns)
        self.last_ended_ns = max(self.last_ended_ns, call.ended_ns)
        if reply.error is None:
            self.succeeded += 1
        else:
            self.errors[reply.error] += 1
            self.details.setdefault(reply.error, reply.detail)
        if row := self.second(call.due_ns):
            row.due += 1
            row.good += not missed and reply.error is None
            for number in range(self.objectives):
                row.missed[number] += missed >> number & 1

    def flush(self) -> None:
        """Move what was collected into histograms, so that memory does not grow with the number of requests."""
        for stream in (self.lag, self.loop_lag, self.read_lag):
            _ = stream.histogram
        self.tally.flush()

    @property
    def window_s(self) -> float:
        """Length of the measured window; up to the end of the last request, where those were over before it."""
        end_ns = self.end_ns
        if end_ns == _NEVER or self.ended_early:
            end_ns = min(end_ns, max(self.last_ended_ns, self.start_ns))
        return (end_ns - self.start_ns) / _SECOND_NS

    def answers_per_s(self, *, open_loop: bool) -> float:
        """Good answers a second, of a steady load.

        Where a duration makes the window, each answer counts by the share of its time that lies in it: counting ends
        alone would jump by a whole wave of equally long requests. Where a number of requests does, a closed loop
        counts from the start of the window to the last end, an open one from the first end to the last: the time
        that the last one takes is no time in which nothing was done.
        """
        if self.end_ns != _NEVER and not self.ended_early:
            return self.answered / self.window_s
        if open_loop and self.succeeded > 1 and self.last_ended_ns > self.first_ended_ns:
            return (self.succeeded - 1) / (self.last_ended_ns - self.first_ended_ns) * _SECOND_NS
        return self.succeeded / self.window_s if self.window_s else 0.0

    def good_share(self) -> float:
        """Of the good answers, those that met every objective."""
        return sum(second.good for second in self.seconds.values()) / self.succeeded if self.succeeded else 0.0

    def _share_in_window(self, call: Call) -> float:
        inside = min(call.ended_ns, self.end_ns) - max(call.sent_ns, self.start_ns)
        if call.ended_ns <= call.sent_ns:
            return float(self.start_ns <= call.ended_ns < self.end_ns)
        return max(inside, 0) / (call.ended_ns - call.sent_ns)

    @property
    def failed(self) -> int:
        return self.errors.total()

    def merge(self, other: "Book") -> None:
        """Take in the book of another load process, exactly."""
        self.tally.merge(other.tally)
        self.first_ended_ns = min(self.first_ended_ns, other.first_ended_ns)
        self.last_ended_ns = max(self.last_ended_ns, other.last_ended_ns)
        for name in ("sent", "succeeded", "unmeasured", "completed_in_window", "answered", "never_sent", "sent_late",
                     "resent", "connections", "connections_late", "most_in_flight", "cpu_all_ns",
                     "processes"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.update(other.errors)
        self.details = other.details | self.details
        for number, theirs in other.seconds.items():
            ours = self.seconds.setdefault(number, Second(missed=[0] * self.objectives))
            for name in ("sent", "completed", "errors", "in_flight", "due", "good"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            ours.missed = [a + b for a, b in zip(ours.missed, theirs.missed, strict=True)]
        for stream in ("lag", "loop_lag", "read_lag"):
            getattr(self, stream).merge(getattr(other, stream))
        self.due_times.extend(other.due_times)
        self.sent_times.extend(other.sent_times)
        self.kernel_stamps &= other.kernel_stamps
        self.cpu_share = max(self.cpu_share, other.cpu_share)
        self.peak_mb = max(self.peak_mb, other.peak_mb)
        self.lost += other.lost
        self.stopped = self.stopped or other.stopped
        self.ended_early |= other.ended_early


class Clock:
    """When one load process may send what: the window, and how many of the requests are its own."""

    def __init__(self, shape: Shape, start_ns: int, shard: int) -> None:
        self.shard, self.shards = shard, shape.processes
        self.begin_ns = start_ns
        self.window_ns = start_ns + round(shape.warmup * _SECOND_NS)
        self._cooldown_ns = round(shape.cooldown * _SECOND_NS)
        self._left: int | None = None
        self.end_ns = self.stop_ns = _NEVER
        if shape.requests:
            self._left = shape.requests // shape.processes + (shard < shape.requests % shape.processes)
            if not self._left:
                self.stop_ns = self.window_ns
        else:
            assert shape.window_s is not None
            self.end_ns = self.window_ns + round(shape.window_s * _SECOND_NS)
            self.stop_ns = self.end_ns + self._cooldown_ns
        self._next = 0
        self._cpu_ns = self._opened_ns = 0

    def index(self) -> int:
        """The number of this process's next request among those of all."""
        number = self._next * self.shards + self.shard
        self._next += 1
        return number

    def measures(self, due_ns: int) -> bool:
        """Whether a request that is due then is measured; it then counts as given out."""
        if not self.window_ns <= due_ns < self.end_ns:
            return False
        if self._left is None:
            return True
        if self._left == 0:
            return False
        self._left -= 1
        if self._left == 0:
            self.stop_ns = min(self.stop_ns, due_ns + self._cooldown_ns)
        return True

    def opened(self, _: int) -> None:
        self._cpu_ns, self._opened_ns = process_time_ns(), monotonic_ns()

    def cpu_ns(self) -> int:
        """CPU time of this process since the window opened."""
        return process_time_ns() - self._cpu_ns

    def cpu_share(self) -> float:
        """That, by the time since then."""
        return max(self.cpu_ns(), 1) / max(monotonic_ns() - self._opened_ns, 1)
