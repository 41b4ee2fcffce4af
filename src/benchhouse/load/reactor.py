"""One loop that waits for sockets and for the next due time."""

import ctypes
import heapq
import os
import select
import sys
from collections import deque
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Any

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_CLOSE_ON_EXEC = 0o2000000
_NEVER = 1 << 63
_MOST_LATER = 64  # beyond that, memory matters more than a delay
_MOST_DUE = 64  # callbacks in a row; sockets must be read even when the schedule is behind


class Reactor:
    """Handlers by file descriptor, callbacks by time, and work for when nothing else is to be done.

    epoll alone wakes to the millisecond; a timerfd wakes within tens of microseconds of the due time, where the core
    has not gone to sleep. `early_ns` before a due time the loop stops waiting and looks again and again instead.
    """

    def __init__(self, early_ns: int = 0) -> None:
        self._early_ns = early_ns
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = 0
        self._alarm = Alarm()
        self._armed = _NEVER
        self._epoll.register(self._alarm.fd, select.EPOLLIN | select.EPOLLET)
        self._stopped = False
        self.later: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # for when nothing else is to be done
        self.realtime_ahead_ns = 0  # of the monotonic clock; kernel stamps are in real time
        self.compare_clocks()
        self.spun_ns = 0  # CPU time spent on being early

    def watch(self, fd: int, handler: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None):
            self._epoll.unregister(fd)

    def at(self, when_ns: int, callback: Callable[[int], None]) -> None:
        """Call `callback(when_ns)` then, or as soon after as can be."""
        self._order += 1
        heapq.heappush(self._timers, (when_ns, self._order, callback))

    def compare_clocks(self) -> None:
        """Measure how far real time is ahead, by the quickest of a few looks; real time may be slewed meanwhile."""
        looks = []
        for _ in range(5):
            before = monotonic_ns()
            real = time_ns()
            after = monotonic_ns()
            looks.append((after - before, real - (before + after) // 2))
        self.realtime_ahead_ns = min(looks)[1]

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        """Until `stop`: sockets and what is due by turns, then the rest. What has arrived bears a stamp and can
        wait."""
        poll, handlers, timers, later = self._epoll.poll, self._handlers, self._timers, self.later
        alarm_fd, early_ns = self._alarm.fd, self._early_ns
        self._stopped = False
        while not self._stopped:
            now = monotonic_ns()
            if later or (timers and timers[0][0] - early_ns <= now):
                events = poll(0)
                if not events and not later and timers[0][0] > now:
                    self.spun_ns += monotonic_ns() - now
                    continue
            else:
                if timers and timers[0][0] != self._armed:
                    self._armed = timers[0][0]
                    self._alarm.set(self._armed - early_ns)
                events = poll(1.0)
            for fd, mask in events:
                if fd == alarm_fd:
                    self._armed = _NEVER
                elif handler := handlers.get(fd):  # an earlier handler of this round may have closed it
                    handler(mask)
                if timers and timers[0][0] <= monotonic_ns():
                    when, _, callback = heapq.heappop(timers)
                    callback(when)
            for _ in range(_MOST_DUE):
                if not timers or timers[0][0] > monotonic_ns():
                    break
                when, _, callback = heapq.heappop(timers)
                callback(when)
            while later and (not events or len(later) > _MOST_LATER):
                work, arguments = later.popleft()
                work(*arguments)
                if not events:
                    break

    def close(self) -> None:
        self._epoll.close()
        self._alarm.close()


class Alarm:
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
