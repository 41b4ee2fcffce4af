"""The server during the load: CPU time of its processes on this machine, and the waits of its sessions."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import monotonic_ns

from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Administrator
from benchhouse.processes.tree import descendants

_LOOK_S = 0.2
_WAITS = (
    "SELECT count(*) FILTER (WHERE wait_event_type = 'IO'), "
    "count(*) FILTER (WHERE wait_event_type IN ('Lock', 'LWLock')) "
    "FROM pg_stat_activity WHERE application_name = %s AND state <> 'idle'"
)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ServerSnapshot:
    """The server at one moment."""

    at_ns: int
    cpu_s: float  # of all its processes
    sleeping: int  # number of its processes in uninterruptible sleep
    io: int | None  # sessions that wait for storage, by the server's statistics
    lock: int | None  # sessions that wait for a lock


class ServerWatch:
    """Watches the server's processes (if `pid` is known) and its sessions of that name, in a thread, during `with`."""

    def __init__(self, pid: int | None, session: Administrator, name: str) -> None:
        self._pid, self._session, self._name = pid, session, name
        self._over = threading.Event()
        self._looks: list[ServerSnapshot] = []
        self._cpu: dict[int, float] = {}  # of each process, including those that have ended in the meantime
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ServerWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def between(self, start_ns: int, end_ns: int) -> dict[str, float]:
        """Return means over that time, without unobserved numbers; empty with fewer than two snapshots."""
        inside = [look for look in self._looks if start_ns <= look.at_ns <= end_ns]
        if len(inside) < 2:
            return {}
        first, last = inside[0], inside[-1]
        seen = {}
        if self._cpu:
            seen["cpu"] = (last.cpu_s - first.cpu_s) / (last.at_ns - first.at_ns) * 1e9
            seen["sleeping"] = fmean(look.sleeping for look in inside)
        if answered := [look for look in inside if look.io is not None]:
            seen["io_wait"] = fmean(look.io or 0 for look in answered)
            seen["lock_wait"] = fmean(look.lock or 0 for look in answered)
        return seen

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            sleeping = 0
            for pid in (self._pid, *descendants(self._pid)) if self._pid else ():
                if fields := _stat(pid):
                    sleeping += fields[0] == b"D"
                    self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            self._looks.append(ServerSnapshot(monotonic_ns(), sum(self._cpu.values()), sleeping, *self._waits()))

    def _waits(self) -> tuple[int | None, int | None]:
        try:
            ((io, lock),) = self._session.query(_WAITS, (self._name,))
        except CallFailed:  # the load reports it
            return None, None
        return io, lock


def server_of(backend: int) -> int | None:
    """Return the server process of a session's process. None if they are not both verifiably on this machine."""
    try:
        command = Path(f"/proc/{backend}/cmdline").read_bytes()
    except OSError:
        return None
    fields = _stat(backend)
    if not fields or not command.startswith(b"postgres:"):  # the number is of another machine, or of a container
        return None
    return int(fields[1]) if int(fields[1]) > 1 else None


def _stat(pid: int) -> list[bytes]:
    """Return the fields of `man proc_pid_stat` from the third, the state, on; empty if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()  # the name before it may contain anything
