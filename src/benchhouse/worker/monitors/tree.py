"""A process and everything below it as one: CPU, memory, I/O.

Known members are read through open descriptors. New ones are searched for at intervals; if a member started and ended
between two searches, its parent's counters include its usage. Counters never decrease: the kernel adds the usage of a
process to its parent's account when the parent waits for it; if no parent in the tree did, the last known usage is kept
here.
"""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from math import nan

from benchhouse.processes import tree
from benchhouse.schema.telemetry import Series
from benchhouse.worker.monitors.procfs import TICKS_PER_S, OpenFile, series

TRIAL = "trial"  # the scope of everything that a trial runs
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KEPT = 64  # members whose files stay open; for further members, the files are opened each time
_LOOK_S = 0.9  # minimum interval for new members, I/O, and threads; CPU and memory are read at every tick
_LOOK_SHARE = 0.0008  # share of a core that searching may cost: 1 ms every 1.25 s
_FIND_SHARE = 0.002  # the same if a finder searches all processes of the machine
_COUNTERS = 7  # user, system, faults, read, written, read by calls, written by calls

_process = partial(series, family="process")
SERIES = (
    _process("cpu", "s", "CPU time used; what ended is still counted.", counter=True),
    _process("cpu_user", "s", "Of that: in programs.", counter=True),
    _process("cpu_system", "s", "Of that: in the kernel.", counter=True),
    _process("rss", "B", "Resident memory, what is shared counted for each."),
    _process("processes", "1", "Processes."),
    _process("threads", "1", "Threads."),
    _process("major_faults", "1", "Pages that had to be read from a disk.", counter=True),
    _process("disk_read", "B", "Bytes fetched from storage.", counter=True),
    _process("disk_written", "B", "Bytes that are to go to storage.", counter=True),
    _process("io_read", "B", "Bytes read by calls: files, pipes, cache.", counter=True),
    _process("io_written", "B", "Bytes written by calls: files, pipes.", counter=True),
    _process("context_switches", "1", "Times that threads got a core.", counter=True),
    _process("cpu_wait", "s", "Time that threads were ready and had no core.", counter=True),
)


class _Member:
    """One process, with its last two readings. Fields are converted to numbers only when needed."""

    __slots__ = ("before", "children", "fields", "io", "moved", "own", "pid", "schedule", "stat")

    def __init__(self, pid: int, *, own: bool, keep: bool) -> None:
        self.pid, self.own = pid, own  # without `own`, only the usage of its children counts
        self.stat = OpenFile(f"/proc/{pid}/stat") if keep else None
        self.io = OpenFile(f"/proc/{pid}/io") if keep and own else None
        self.children = OpenFile(f"/proc/{pid}/task/{pid}/children") if keep and own else None
        self.schedule = OpenFile(f"/proc/{pid}/schedstat") if keep and own else None
        self.fields: list[bytes] = []  # fields of stat, from the state on: field 3 of the man page is at 0
        self.moved: list[bytes] = []
        self.before = (self.fields, self.moved)

    def read(self) -> bool:
        """Read its stat, without its I/O. Return False if the process is gone."""
        text = self.stat.read() if self.stat else _read(f"/proc/{self.pid}/stat")
        if not text:
            return False
        self.before = (self.fields, self.moved)
        self.fields = text[text.rindex(b")") + 2 :].split(None, 22)
        return True

    def read_io(self) -> None:
        if self.own and (text := self.io.read() if self.io else _read(f"/proc/{self.pid}/io")):
            self.moved = text.split()

    @property
    def parent(self) -> int:
        return int(self.fields[1])

    @property
    def threads(self) -> int:
        return int(self.fields[17])

    @property
    def rss(self) -> int:
        return int(self.fields[21]) * _PAGE

    def account(self) -> tuple[float, ...]:
        """Return its usage, including all of its children that were waited for."""
        fields = self.fields
        user, system, faults = int(fields[13]), int(fields[14]), int(fields[10])
        if not self.own:
            return user / TICKS_PER_S, system / TICKS_PER_S, faults, 0, 0, 0, 0
        user, system, faults = user + int(fields[11]), system + int(fields[12]), faults + int(fields[9])
        return user / TICKS_PER_S, system / TICKS_PER_S, faults, *_moved(self.moved)

    def inherited(self) -> list[float]:
        """Return what its children added since the previous reading; for I/O, its own is included."""
        now, before = self._inherited(self.fields, self.moved), self._inherited(*self.before)
        return [after - earlier for after, earlier in zip(now, before, strict=True)]

    def _inherited(self, fields: list[bytes], moved: list[bytes]) -> tuple[float, ...]:
        if not fields:
            return (0.0,) * _COUNTERS
        io = _moved(moved) if self.own else (0, 0, 0, 0)
        return int(fields[13]) / TICKS_PER_S, int(fields[14]) / TICKS_PER_S, int(fields[10]), *io

    def look(self, seen: dict[int, tuple[int, int]]) -> list[int]:
        """Return its children. Adds to `seen` how often each of its threads got a core, and how long it waited for
        one."""
        if self.own and self.threads == 1 and self.children and self.schedule:
            _add_schedule(seen, self.pid, self.schedule.read())
            return [int(word) for word in self.children.read().split()]
        children: list[int] = []
        folder = f"/proc/{self.pid}/task"
        with contextlib.suppress(OSError):
            for task in os.listdir(folder):  # noqa: PTH208 - names, not paths
                children += map(int, _read(f"{folder}/{task}/children").split())
                if self.own:
                    _add_schedule(seen, int(task), _read(f"{folder}/{task}/schedstat"))
        return children

    def close(self) -> None:
        for file in (self.stat, self.io, self.children, self.schedule):
            if file is not None:
                file.close()


def _add_schedule(seen: dict[int, tuple[int, int]], task: int, text: bytes) -> None:
    if len(fields := text.split()) == 3:
        seen[task] = int(fields[2]), int(fields[1])


def _moved(fields: list[bytes]) -> tuple[float, ...]:
    """Return the bytes from and to storage, and by calls; NaN if unreadable, as for another user's process."""
    if len(fields) < 12:
        return nan, nan, nan, nan
    return int(fields[9]), int(fields[11]), int(fields[1]), int(fields[3])


class ProcessTree:
    """`pid` and every process below it; with `below`, only those below, because the caller's own work is not the
    trial's.

    `finder` returns further members at each search; those in `without` are never members. `told` is called with all
    known members after each search.
    """

    series: Sequence[Series] = SERIES

    def __init__(
        self,
        name: str,
        pid: int | None = None,
        *,
        below: bool = False,
        start: int | None = None,
        finder: Callable[[], Iterable[int]] | None = None,
        without: Collection[int] = (),
        told: Callable[[Collection[int]], object] | None = None,
    ) -> None:
        self.name, self._finder, self._without, self._told = name, finder, without, told
        self._share = _FIND_SHARE if finder else _LOOK_SHARE
        self._root, self._below = pid, below
        self._members: dict[int, _Member] = {}
        self._lost = [0.0] * _COUNTERS
        self._switches = _Switches()
        self._look_at = 0.0
        if pid is not None and (start is None or tree.start_time(pid) == start):
            self._enter([pid])

    def sample(self) -> list[float]:
        now = time.monotonic()
        looks = now >= self._look_at
        gone = [member for member in self._members.values() if not member.read()]
        if gone or looks:
            for member in self._members.values():
                member.read_io()  # for a process that is gone, the last reading remains
        if gone:
            self._settle(gone)
        switches = waited = nan
        if looks:
            began = time.thread_time()
            switches, waited = self._look()
            self._look_at = now + max(_LOOK_S, (time.thread_time() - began) / self._share)
        user, system, faults, read, written, took, gave = self._lost
        rss = threads = count = 0
        for member in self._members.values():
            used = member.account()
            user, system, faults = user + used[0], system + used[1], faults + used[2]
            read, written, took, gave = read + used[3], written + used[4], took + used[5], gave + used[6]
            if member.own:
                rss, threads, count = rss + member.rss, threads + member.threads, count + 1
        if not looks:
            read = written = took = gave = nan
        return [
            user + system, user, system, rss, count, threads, faults, read, written, took, gave, switches, waited,
        ]  # fmt: skip

    def refresh(self) -> None:
        self._look_at = 0.0

    def close(self) -> None:
        for member in self._members.values():
            member.close()
        self._members.clear()

    def _enter(self, pids: Iterable[int]) -> list[_Member]:
        entered = []
        for pid in pids:
            if pid in self._without or pid in self._members:
                continue
            own = not self._below or pid != self._root
            member = _Member(pid, own=own, keep=len(self._members) < _KEPT)
            if member.read():
                member.read_io()
                self._members[pid] = member
                entered.append(member)
            else:
                member.close()
        return entered

    def _settle(self, gone: list[_Member]) -> None:
        """Keep the usage of members that are gone, less what their nearest living ancestor inherited."""
        left: dict[int, list[float]] = {}
        parents = {member.pid: member.parent for member in gone}
        for member in gone:
            heir = member.parent
            while heir in parents and heir != parents[heir]:
                heir = parents[heir]
            sums = left.setdefault(heir if heir in self._members and heir not in parents else 0, [0.0] * _COUNTERS)
            for at, value in enumerate(member.account()):
                sums[at] += value
            member.close()
            del self._members[member.pid]
        for heir, sums in left.items():
            living = self._members.get(heir)
            taken = living.inherited() if living else [0.0] * _COUNTERS
            for at, value in enumerate(sums):
                if value > taken[at]:  # never true for NaN
                    self._lost[at] += value - taken[at]

    def _look(self) -> tuple[float, float]:
        """Add new members. Return how often all threads got a core, and how long they waited for one."""
        seen: dict[int, tuple[int, int]] = {}
        waiting = [*self._members.values(), *self._enter(self._finder() if self._finder else ())]
        if self._root is not None and not tree.kernel_lists_children():
            waiting += self._enter(tree.descendants(self._root))
        while waiting:
            children = waiting.pop().look(seen)
            waiting += self._enter(children)
        if self._told:
            self._told(self._members.keys())
        return self._switches.add(seen)


class _Switches:
    """Sums over threads that keep the values of ended threads."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._ended = [0, 0]

    def add(self, seen: dict[int, tuple[int, int]]) -> tuple[float, float]:
        for task, last in self._last.items():
            if seen.get(task, (-1, 0)) < last:  # it ended, or its number was reused
                self._ended[0] += last[0]
                self._ended[1] += last[1]
        self._last = seen
        switches, waited_ns = (self._ended[at] + sum(counts[at] for counts in seen.values()) for at in (0, 1))
        return switches, waited_ns / 1e9


def _read(path: str) -> bytes:
    file = OpenFile(path)
    try:
        return file.read()
    finally:
        file.close()
