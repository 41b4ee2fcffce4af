"""Delays: how long threads were ready to run and did not, which is in the times of their calls and not the server's.

There are three kinds, each known in its own way:

- Waiting for a core: the kernel counts it for each thread (`RunDelay`).
- A stop of the whole process, which nobody counts: a thread that ticks was late by more than a tick, did not wait for a
  core, and the process did not compute meanwhile (`Pauses`).
- All the rest: Python's lock after a call has come back, short stops, a virtual processor that its host does not run, a
  core that wakes late. A thread that is woken at ticks, and as calls end, tells how often one waits how long
  (`Book.waits`): samples, not the wait of each call. Where the kernel does not count, waiting for a core is in them.
  None of it is in a call during which its thread ran all the time, as of an index that is searched by that thread:
  the kernel counts how often a thread was given a core, so of so many calls at most that many were broken.
"""

import os
import queue
import resource
from contextlib import suppress
from time import monotonic_ns, process_time_ns, sleep

TICK_NS = 20_000_000
"""How often the thread that watches is woken: a shorter stop of the process is not told from the rest."""
LOOK_NS = 1_000_000
"""How often a thread that makes short calls looks at its run delay: a look costs 1.6 µs."""
_BELL_NS = 10_000_000  # between two samples of what a thread waits for as a call ends
_ROOM = 96


def make_room(threads: int) -> None:
    """Let so many threads have a file open each, to look at their delays, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = soft + threads if hard == resource.RLIM_INFINITY else min(soft + threads, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class RunDelay:
    """How long the thread that made this was ready to run and had no core. `counts`: whether the kernel says so.

    `turns`, as of the last look, is how often it was given a core: between two looks that find the same, it ran all the
    time.
    """

    def __init__(self) -> None:
        self._file, self._seen_ns, self.turns, self.counts = -1, 0, 0, False
        with suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self.counts = int(os.pread(self._file, _ROOM, 0).split()[2]) > 0  # else it says that it never ran
        self.look()

    def look(self) -> int:
        """Nanoseconds since the last look; 0 where the kernel does not count."""
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
        """Whether there was one after that."""
        return bool(self._pauses) and self._pauses[-1][1] > when_ns

    def within(self, began_ns: int, ended_ns: int) -> int:
        """How much of that time they take."""
        total = 0
        for began, ended in reversed(self._pauses):
            if ended <= began_ns:
                break
            total += max(min(ended, ended_ns) - max(began, began_ns), 0)
        return total


class DelayMeter:
    """What one thread of a process, woken at ticks and as calls of the others end, knows of how late a thread runs."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.looked_ns = 0  # up to when these are known
        self._bell: queue.SimpleQueue[int] = queue.SimpleQueue()  # when calls ended, some of them
        self._next_bell_ns = 0
        self._over = False

    def begin(self) -> None:
        """Called by the thread that watches, before anything else."""
        self._delay, self._cpu_ns = RunDelay(), process_time_ns()

    def end(self) -> None:
        """Called by the same thread, after all."""
        self._over = True
        self._delay.close()

    def ring(self, ended_ns: int) -> None:
        """A call has ended. Now and then that wakes the one who watches: one more that wants to run at that moment."""
        if ended_ns >= self._next_bell_ns:
            self._next_bell_ns = ended_ns + _BELL_NS
            self._bell.put(ended_ns)

    def hear(self, due_ns: int) -> int:
        """Sleep until then, or until a call ends that wakes this thread: when that was, else 0."""
        try:
            return self._bell.get(timeout=max(due_ns - monotonic_ns(), 0) / 1e9)
        except queue.Empty:
            return 0

    def woke(self, due_ns: int, rung_ns: int, *, alone: bool) -> tuple[int, int | None]:
        """What time it is, and how late this thread runs beside waiting for a core; None after a stop of the process.

        `alone`: what the only other thread computes with Python's lock is no wait of its own.
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
        """Until it is known whether this process was stopped before then; it is at once, unless it was."""
        while self.looked_ns + 2 * TICK_NS < until_ns and not self._over:
            sleep(TICK_NS / 1e10)
