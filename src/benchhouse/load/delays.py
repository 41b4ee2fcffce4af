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
from contextlib import suppress

LOOK_NS = 1_000_000
"""How often a thread that makes short calls looks at its run delay: a look costs 1.6 µs."""
_ROOM = 96


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
