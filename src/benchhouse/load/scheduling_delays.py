"""Scheduling delays: how long threads were ready but did not run. They are in the times of calls but not caused by the
server.

There are three kinds, each measured in its own way:

- Waiting for a core: the kernel counts it for each thread (`RunDelay`).
- A stop of the whole process, which no counter records: a ticking thread was late by more than a tick, did not wait for
  a core, and the process did not compute meanwhile (`Pauses`).
- All the rest: Python's lock after a call has returned, short stops, a virtual processor that its host does not run, a
  core that wakes late. A thread that is woken at ticks and when calls end samples how often threads wait how long
  (`LoadRecord.waits`), not the wait of each call. If the kernel does not count, the samples include waiting for a core.

None of these affects a call during which its thread ran all the time, such as a search of an index in that thread: the
kernel counts how often a thread was given a core, which is an upper bound of the interrupted calls.
"""

import os
import queue
import resource
from contextlib import suppress
from time import monotonic_ns, process_time_ns, sleep

TICK_NS = 20_000_000
"""Wake-up interval of the watching thread: a shorter stop of the process cannot be distinguished from other delays."""
LOOK_NS = 1_000_000
"""Interval at which a thread that makes short calls reads its run delay; a read costs 1.6 µs."""
_BELL_NS = 10_000_000  # between two samples of a thread's wait when a call ends
_ROOM = 96


def make_room(threads: int) -> None:
    """Raise the limit of open files, as far as the system allows, so that each thread can open one to read its
    delays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = soft + threads if hard == resource.RLIM_INFINITY else min(soft + threads, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class RunDelay:
    """How long the thread that created this object was ready to run but had no core.

    `counts`: whether the kernel counts it. `turns`, as of the last look, is how often the thread was given a core: if
    it is equal at two looks, the thread ran all the time between them.
    """

    def __init__(self) -> None:
        self._file, self._seen_ns, self.turns, self.counts = -1, 0, 0, False
        with suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            # a kernel that does not count reports zero
            self.counts = int(os.pread(self._file, _ROOM, 0).split()[2]) > 0
        self.look()

    def look(self) -> int:
        """Return the nanoseconds since the last look; 0 if the kernel does not count."""
        if not self.counts:
            return 0
        _, delay_ns, turns = os.pread(self._file, _ROOM, 0).split()
        before, self._seen_ns, self.turns = self._seen_ns, int(delay_ns), int(turns)
        return self._seen_ns - before

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self.counts = -1, False


class Pauses:
    """When this whole process may not have run. One thread writes it, others read."""

    def __init__(self) -> None:
        self._pauses: list[tuple[int, int]] = []

    def add(self, began_ns: int, ended_ns: int) -> None:
        self._pauses.append((began_ns, ended_ns))

    def since(self, when_ns: int) -> bool:
        """Whether a pause ended after that time."""
        return bool(self._pauses) and self._pauses[-1][1] > when_ns

    def within(self, began_ns: int, ended_ns: int) -> int:
        """Return how much of that time the pauses take."""
        total = 0
        for began, ended in reversed(self._pauses):
            if ended <= began_ns:
                break
            total += max(min(ended, ended_ns) - max(began, began_ns), 0)
        return total


class DelayMeter:
    """Measures how late a thread runs, in one thread of a process that is woken at ticks and when calls of others
    end."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.looked_ns = 0  # time up to which the pauses are known
        self._bell: queue.SimpleQueue[int] = queue.SimpleQueue()  # end times of some of the calls
        self._next_bell_ns = 0
        self._over = False

    def begin(self) -> None:
        """Start measuring; called by the watching thread before anything else."""
        self._delay, self._cpu_ns = RunDelay(), process_time_ns()

    def end(self) -> None:
        """Stop measuring; called by the same thread at the end."""
        self._over = True
        self._delay.close()

    def ring(self, ended_ns: int) -> None:
        """Record that a call has ended. From time to time this wakes the watching thread, which then competes for a
        core."""
        if ended_ns >= self._next_bell_ns:
            self._next_bell_ns = ended_ns + _BELL_NS
            self._bell.put(ended_ns)

    def hear(self, due_ns: int) -> int:
        """Sleep until `due_ns`, or until a call that ends wakes this thread. Return when that call ended, otherwise
        0."""
        try:
            return self._bell.get(timeout=max(due_ns - monotonic_ns(), 0) / 1e9)
        except queue.Empty:
            return 0

    def woke(self, due_ns: int, rung_ns: int, *, alone: bool) -> tuple[int, int | None]:
        """Return the current time, and how late this thread runs in addition to waiting for a core.

        The lateness is None after a stop of the process. `alone`: the time that the only other thread computes with
        Python's lock is not counted as a wait.
        """
        now, computed = monotonic_ns(), process_time_ns() - self._cpu_ns
        self._cpu_ns += computed
        waited = self._delay.look()
        late_ns, missed_ns = max(now - (rung_ns or due_ns) - waited, 0), now - due_ns - waited
        stopped = missed_ns > TICK_NS and computed < missed_ns / 2  # a call may have rung right after a stop
        if stopped:
            self.pauses.add(self.looked_ns, now)
        self.looked_ns = now
        return now, None if stopped else max(late_ns - computed, 0) if alone else late_ns

    def wait_until_known(self, until_ns: int) -> None:
        """Wait until it is known whether this process was stopped before then; returns at once unless it was."""
        while self.looked_ns + 2 * TICK_NS < until_ns and not self._over:
            sleep(TICK_NS / 1e10)
