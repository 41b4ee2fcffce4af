"""The poller: waits for sockets, and reads those whose data matter only once an answer may be complete.

There are two implementations. `_poller.c` is the same in C, so that no Python runs per token. This one is used if
nothing could be compiled, and is the reference for the other: the same tests run on both.

Every read leaves a mark. The kernel stamps arriving data, but joins what waits in a socket's queue and keeps the newest
stamp: if one read returns several items, only the last has its own stamp. The mark's floor is the earliest time at
which the first can have arrived. It is the later of two moments: when this socket was last read empty, and when all
sockets were last checked and this one was not ready. A thread that slept until data came adds a third: when it began to
wait for a core, according to the kernel's count. If that count is missing, or the thread was also stopped, the time at
which it fell asleep is used. No count includes a core that itself wakes late, such as a virtual core that its host does
not run: this shows when a thread was to be woken at a known time, and the largest such delay of the last seconds is
subtracted.

With BENCHHOUSE_ENGINE=python in the environment this implementation is always used, to find out whether a doubtful
number or a crash comes from the compiled one.
"""

import os
import resource
import select
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns, thread_time_ns
from typing import NamedTuple, Protocol

from benchhouse.load.answers_python import READ

_READ_BYTES = 1 << 16  # a larger buffer would be a separate mapping, and cost more than the read
ANCILLARY_BYTES = 64
_MOST_KEPT = 1 << 20
_MOST_ASKEW_NS = 10_000_000_000
_WHILE_NS = 2_000_000_000
_STAMP = struct.Struct("=qq")
_EMPTY_LINE = b"\r\n\r\n"
OPEN = -1  # the end state of a socket that is still open

READABLE, WRITABLE = select.EPOLLIN, select.EPOLLOUT


class ReadResult(NamedTuple):
    """What a socket received since its data was last handed over."""

    data: bytes
    # per read: its end in `data`, the kernel's stamp, the floor, and the read time; see `answers_python.READ`
    reads: bytes
    ended: int  # OPEN, 0 if the other side closed, otherwise an errno


class Poller(Protocol):
    realtime_ahead_ns: int  # how far real time, which kernel stamps use, is ahead of the monotonic clock

    def watch(self, file: socket.socket | int, events: int, /) -> None:
        """Report from now on when one of these events happens."""

    def forget(self, file: socket.socket | int, /) -> None: ...

    def collect(self, file: socket.socket, enough: int, /) -> None:
        """Read the socket from now on, and report it when it has `enough` bytes, when a read ends with an empty line,
        as heads and most streams do, or when nothing more will come. A negative number stops the reading."""

    def take(self, file: socket.socket, /) -> tuple[bytes, bytes, int]:
        """Return a `ReadResult` as a plain tuple."""

    def wait(self, sleep: bool, until_ns: int, /) -> list[int]:
        """Return file descriptors and events, alternating. If `sleep` is set, wait until there is an event. Data of
        collected sockets are read, but not past `until_ns` unless that is 0: a watched file must wake the thread then.
        """

    def close(self) -> None: ...


class _Watched:
    __slots__ = ("collects", "data", "drained_ns", "ended", "enough", "file", "left_ns", "marks", "stamp_ns", "tail")

    def __init__(self, file: socket.socket | int) -> None:
        self.file = file
        self.collects, self.enough = False, 0
        self.data, self.marks = bytearray(), bytearray()
        self.drained_ns = self.stamp_ns = 0
        self.left_ns = 0  # floor of the data left in the kernel if the last read did not take everything
        self.ended = OPEN
        self.tail = b""  # the last bytes, handed over or not


class PythonPoller:
    """The reference implementation."""

    def __init__(self) -> None:
        self.realtime_ahead_ns = 0
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        self._harvest: list[tuple[int, int]] = []  # events that are not handled yet, the last first
        self._swept_ns = self._floor_ns = monotonic_ns()
        self._schedstat = -1
        with suppress(OSError):
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._waited_ns = self._run_delay_ns()  # as last read
        # The longest wake-up delay that no wait for a core explains, in this period and the last, and the period's
        # start.
        self._late_ns, self._late_before_ns, self._while_ns = 0, 0, 0

    def watch(self, file: socket.socket | int, events: int) -> None:
        fd = _number(file)
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._watched[fd] = _Watched(file)

    def forget(self, file: socket.socket | int) -> None:
        fd = _number(file)
        watched = self._watched.pop(fd)
        try:
            self._epoll.unregister(fd)
        except OSError:
            self._watched[fd] = watched
            raise
        self._harvest = [item for item in self._harvest if item[0] != fd]

    def collect(self, file: socket.socket, enough: int) -> None:
        watched = self._watched[file.fileno()]
        watched.collects, watched.enough = enough >= 0, enough

    def take(self, file: socket.socket) -> tuple[bytes, bytes, int]:
        watched = self._watched[file.fileno()]
        taken = bytes(watched.data), bytes(watched.marks), watched.ended
        watched.data.clear()
        watched.marks.clear()
        return taken

    def wait(self, sleep: bool, until_ns: int) -> list[int]:
        ready: list[int] = []
        while True:
            if not self._harvest:
                self._look(sleep, until_ns)
            while self._harvest:
                fd, mask = self._harvest.pop()
                watched = self._watched[fd]
                if watched.collects and mask & ~WRITABLE and watched.ended == OPEN:
                    mask = mask & WRITABLE | READABLE * self._read(watched)
                if mask:
                    ready += (fd, mask)
                if until_ns and monotonic_ns() >= until_ns:
                    return ready
            if ready or not sleep:
                return ready

    def close(self) -> None:
        self._epoll.close()
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _look(self, sleep: bool, due_ns: int) -> None:
        """Check all sockets; if none is ready and `sleep` is set, sleep until one is."""
        most = len(self._watched) + 1
        self._floor_ns, self._swept_ns = self._swept_ns, monotonic_ns()
        self._harvest = self._epoll.poll(0, most)[::-1]
        if not sleep or self._harvest:
            return
        waited, slept, ran = self._waited_ns, _sleeps(), thread_time_ns()
        self._harvest = self._epoll.poll(1.0, most)[::-1]
        woken = monotonic_ns() - (thread_time_ns() - ran)
        # The count is unusable if the thread was also stopped, or may have waited for Python's lock.
        tells = self._harvest and _sleeps() == slept + 1 and threading.active_count() == 1
        self._waited_ns = self._run_delay_ns()
        self._floor_ns = self._swept_ns
        if tells and waited is not None and self._waited_ns is not None:
            came = woken - (self._waited_ns - waited)
            came -= self._lateness_ns(came, due_ns)
            self._swept_ns = self._floor_ns = max(self._floor_ns, came)

    def _lateness_ns(self, came_ns: int, due_ns: int) -> int:
        """Return the largest recent wake-up delay, including this one.

        The thread was to be woken at `due_ns` (0: at no set time) and began to wait for a core at `came_ns`.
        """
        if came_ns - self._while_ns > _WHILE_NS:
            self._late_before_ns, self._late_ns, self._while_ns = self._late_ns, 0, came_ns
        if due_ns:
            self._late_ns = max(self._late_ns, came_ns - due_ns)
        return max(self._late_ns, self._late_before_ns)

    def _run_delay_ns(self) -> int | None:
        """Return how long this thread was ready but did not run, in total; None if the kernel does not count it."""
        if self._schedstat < 0:
            return None
        _, delay, turns = map(int, os.pread(self._schedstat, 96, 0).split())
        return delay if turns else None  # a kernel that does not count reports zero turns

    def _read(self, watched: _Watched) -> bool:
        """Read all that has arrived. Return whether it is to be handed over."""
        assert isinstance(watched.file, socket.socket)
        while True:
            before = monotonic_ns()
            try:
                data, ancillary, _, _ = watched.file.recvmsg(_READ_BYTES, ANCILLARY_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                watched.left_ns = 0
                return bool(watched.data) and len(watched.data) >= watched.enough
            except OSError as error:
                watched.ended = error.errno or 0
                return True
            if not data:
                watched.ended = 0
                return True
            now = monotonic_ns()
            watched.data += data
            watched.tail = (watched.tail + data)[-len(_EMPTY_LINE) :]
            floor = watched.left_ns or max(watched.drained_ns, self._floor_ns)  # the rest was there at the last check
            watched.stamp_ns = kernel_stamp(ancillary, self.realtime_ahead_ns, watched.stamp_ns, floor, now)
            floor = min(floor, watched.stamp_ns)  # the kernel first stamps, then wakes the thread
            watched.marks += READ.pack(len(watched.data), watched.stamp_ns, floor, now)
            if len(data) < _READ_BYTES:
                watched.drained_ns, watched.left_ns = before, 0
                return watched.tail == _EMPTY_LINE or len(watched.data) >= watched.enough
            watched.left_ns = floor
            if len(watched.data) >= _MOST_KEPT:
                return True


def kernel_stamp(
    ancillary: Sequence[tuple[int, int, bytes]], ahead_ns: int, least_ns: int, floor_ns: int, now_ns: int
) -> int:
    """Return when the kernel received the data; ignores a clock that was set, and never goes back in time."""
    if not ancillary:
        return now_ns
    seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
    stamp: int = seconds * 1_000_000_000 + nanoseconds - ahead_ns
    return now_ns if stamp > now_ns or floor_ns - stamp > _MOST_ASKEW_NS else max(stamp, least_ns)


def _number(file: socket.socket | int) -> int:
    return file if isinstance(file, int) else file.fileno()


def _sleeps() -> int:
    """Return the number of times that this thread slept or was stopped."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def make_poller() -> Poller:
    """Return the compiled poller if there is one, unless BENCHHOUSE_ENGINE requests the Python one."""
    if os.environ.get("BENCHHOUSE_ENGINE") == "python":
        return PythonPoller()
    try:
        from benchhouse.load._poller import Poller as CompiledPoller
    except ImportError:
        return PythonPoller()
    return CompiledPoller()
