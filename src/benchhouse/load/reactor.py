"""A loop that waits for sockets and for the next due time."""

import ctypes
import heapq
import os
import select
import socket
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Any

from benchhouse.load.poller import Poller, make_poller

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_CLOSE_ON_EXEC = 0o2000000
_NEVER = 1 << 62
_SLICE_NS = 300_000  # of work, between two checks of the sockets
_MOST_LATER = 8192  # maximum of queued work: beyond that, it alternates with the sockets, otherwise memory would grow
_MOST_DUE = 64  # callbacks in a row; sockets must be read even if the schedule is late


class Reactor:
    """Handlers by file descriptor, callbacks by time, and work for idle times.

    epoll alone wakes to the millisecond; a timerfd wakes within tens of microseconds of the due time if the core is not
    asleep. `early_ns` before a due time the loop stops waiting and polls instead.
    """

    def __init__(self, early_ns: int = 0, poller: Poller | None = None) -> None:
        self._early_ns = early_ns
        self.poller = poller or make_poller()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._ready: dict[int, int] = {}  # events that no handler has processed yet, by file descriptor
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = 0
        self._alarm = MonotonicTimer()
        self._armed = _NEVER
        self.poller.watch(self._alarm.fd, select.EPOLLIN | select.EPOLLET)
        self._stopped = False
        self.later: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # for idle times
        self.compare_clocks()
        self.spun_ns = 0  # CPU time spent on being early

    def watch(self, file: socket.socket | int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `handler(events)` when one of these events happens; replaces the handler of a watched file."""
        self._handlers[file if isinstance(file, int) else file.fileno()] = handler
        self.poller.watch(file, events)

    def forget(self, file: socket.socket | int) -> None:
        fd = file if isinstance(file, int) else file.fileno()
        if self._handlers.pop(fd, None):
            self._ready.pop(fd, None)
            self.poller.forget(file)

    def at(self, when_ns: int, callback: Callable[[int], None]) -> None:
        """Call `callback(when_ns)` at that time, or as soon as possible afterwards."""
        self._order += 1
        heapq.heappush(self._timers, (when_ns, self._order, callback))

    def compare_clocks(self) -> None:
        """Measure how far real time is ahead, by the fastest of several comparisons; real time may be slewed
        meanwhile."""
        looks = []
        for _ in range(5):
            before = monotonic_ns()
            real = time_ns()
            after = monotonic_ns()
            looks.append((after - before, real - (before + after) // 2))
        self.poller.realtime_ahead_ns = min(looks)[1]

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Run until `stop`: first what is due, then sockets, then the rest. All sockets are checked at intervals: data
        that has arrived has a stamp and can wait, but not until more has arrived behind it."""
        poller, ready, timers, later, early_ns = self.poller, self._ready, self._timers, self.later, self._early_ns
        self._stopped = False
        while not self._stopped:
            now = monotonic_ns()
            due = timers[0][0] if timers else _NEVER
            busy = ready or later or due - early_ns <= now
            if not busy and timers and due != self._armed:
                self._armed = due
                self._alarm.set(due - early_ns)
            events = poller.wait(not busy, due)
            for fd, mask in zip(events[::2], events[1::2], strict=True):
                ready[fd] = ready.get(fd, 0) | mask
            if busy and not ready and not later and monotonic_ns() < due:
                self.spun_ns += monotonic_ns() - now
                continue
            self._work_on(monotonic_ns() + _SLICE_NS)

    def _work_on(self, until_ns: int) -> None:
        ready, handlers, timers, later = self._ready, self._handlers, self._timers, self.later
        for _ in range(_MOST_DUE):
            if not timers or timers[0][0] > monotonic_ns():
                break
            self._call_first()
        if len(later) > _MOST_LATER:
            self._do_later(until_ns)
            until_ns += _SLICE_NS
        while ready:
            fd = next(iter(ready))
            mask = ready.pop(fd)
            if handler := handlers.get(fd):  # the alarm has no handler
                handler(mask)
            now = monotonic_ns()
            if timers and timers[0][0] <= now:
                self._call_first()
            if now >= until_ns:
                return
        self._do_later(until_ns)

    def _do_later(self, until_ns: int) -> None:
        later, timers = self.later, self._timers
        while later and monotonic_ns() < until_ns and not (timers and timers[0][0] <= monotonic_ns()):
            work, arguments = later.popleft()
            work(*arguments)

    def _call_first(self) -> None:
        when, _, callback = heapq.heappop(self._timers)
        callback(when)

    def close(self) -> None:
        self.poller.close()
        self._alarm.close()


class MonotonicTimer:
    """A timerfd on the monotonic clock."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | _CLOSE_ON_EXEC))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), f"no timerfd on {sys.platform}")
        self._spec = (ctypes.c_long * 4)()  # interval and value, seconds and nanoseconds each
        self._argument = ctypes.byref(self._spec)

    def set(self, when_ns: int) -> None:
        self._spec[2], self._spec[3] = divmod(max(when_ns, 1), 1_000_000_000)
        if self._libc.timerfd_settime(self.fd, _ABSOLUTE, self._argument, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        os.close(self.fd)
