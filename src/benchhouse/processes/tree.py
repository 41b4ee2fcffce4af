"""Lists the processes below the worker, and makes sure that none of them outlives the trial."""

import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@cache
def _libc() -> Any:
    """Load libc once for everything that a process forks: only processes that call it pay the 3 ms for ctypes."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    return libc


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def flush_c_streams() -> None:
    """Flush what C libraries have printed but not yet handed to the kernel."""
    _libc().fflush(None)


def become_subreaper() -> None:
    """From now on, make orphans below the calling process its children, so that none can escape."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int, parent_pid: int) -> None:
    """Have the kernel send `signum` to the caller when its parent dies; the caller's own children do not inherit this.

    Pass the parent's pid as known before the fork: if the parent died before this call, the signal is sent at once.
    "Parent" means the thread that forked, so fork from a thread that lives until the parent ends.
    """
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signum)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on: field 3 of the man page is index 0. None if
    unreadable."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - called thousands of times in a scan
            text = file.read()
    except OSError:
        return None
    # The command name can contain spaces and parentheses; the last ")" ends it.
    return text[text.rindex(b")") + 2 :].decode("ascii").split()


def start_time(pid: int) -> int | None:
    """Return the clock ticks between boot and the start of `pid`, or None if there is no such process.

    A pid with its start time identifies one process until the machine reboots; a pid alone is reused.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def alive(pid: int, start_time: int | None) -> bool:
    """Whether the process with this pid and start time still runs; a zombie does not. A start time of None matches
    any."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX" and start_time in (None, int(fields[19]))


def command_name(pid: int) -> str:
    """Return the kernel's short name of a process, or "?" if it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return "?"


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names, not paths


def _children_from_kernel(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):  # the process or one of its threads has ended in the meantime
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names: paths as objects cost more than the look
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:  # noqa: PTH123
                children += map(int, file.read().split())
    return children


@cache
def kernel_lists_children() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _children_from_scan() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        if fields := _stat(pid):
            children.setdefault(int(fields[1]), []).append(pid)
    return children


def children(pid: int) -> list[int]:
    """Return the processes whose parent is `pid`, zombies included."""
    return _children_from_kernel(pid) if kernel_lists_children() else _children_from_scan().get(pid, [])


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, parents before their children, zombies included, without `pid` itself.

    The list is a snapshot: a process that forks or exits meanwhile can be missed, so callers that must be sure repeat
    it.
    """
    scan = None if kernel_lists_children() else _children_from_scan()
    below = {pid: None}  # ordered
    waiting = [pid]
    for parent in waiting:
        children = _children_from_kernel(parent) if scan is None else scan.get(parent, [])
        waiting += [child for child in children if child not in below]
        below |= dict.fromkeys(children)
    return waiting[1:]


def send(pid: int, start: int | None, signum: int) -> bool:
    """Signal exactly the process that started at `start`. Return False if it is gone or not ours to signal."""
    if pid <= 1 or pid == os.getpid():
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # an old kernel, or no descriptor left: a pid reused within microseconds is the smaller risk
        handle = -1
    try:
        if not alive(pid, start):
            return False
        if handle < 0:
            os.kill(pid, signum)
        else:
            signal.pidfd_send_signal(handle, signum)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def reap(pid: int = -1) -> list[int]:
    """Collect the children (or the one child) that have exited, without waiting; their exit status is lost."""
    gone: list[int] = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.wait4(pid, os.WNOHANG))[0] > 0:
            _USAGE.note(ended[2])
            gone.append(ended[0])
    return gone


def wait(pid: int) -> int:
    """Wait until this child has ended. Return its status in the format of waitpid."""
    _, status, used = os.wait4(pid, 0)
    _USAGE.note(used)
    return status


def kill_tree(pids: Iterable[int], grace_s: float = 2.0, give_up_s: float = 5.0) -> list[int]:
    """Send SIGTERM to these processes and all below them, then SIGKILL to the rest after `grace_s`; reap own children.

    Return those still alive `give_up_s` after the SIGKILL: they are stuck in the kernel, or belong to another user.
    """
    targets = {pid: start_time(pid) for pid in pids}

    def living() -> dict[int, int | None]:
        for root in list(targets):
            for pid in descendants(root):
                targets.setdefault(pid, start_time(pid))
        for pid in targets:
            reap(pid)
        return {pid: start for pid, start in targets.items() if start is not None and alive(pid, start)}

    for pid, start in living().items():
        send(pid, start, signal.SIGTERM)
    kill_at = time.monotonic() + grace_s
    while (left := living()) and time.monotonic() < kill_at:
        time.sleep(0.01)
    while left and time.monotonic() < kill_at + give_up_s:
        for pid, start in left.items():
            send(pid, start, signal.SIGKILL)
        time.sleep(0.002)
        left = living()
    return sorted(left)


def kill_descendants(grace_s: float = 2.0, give_up_s: float = 10.0) -> list[str]:
    """Kill and reap everything below the caller, which is a subreaper. Return the names of what still ran.

    Collect the main child's exit status first, because every status is dropped here. The search repeats until it finds
    nothing, so that a fork during the kill cannot escape; what outlives `give_up_s` still shows in
    `descendants(os.getpid())`.
    """
    names: dict[tuple[int, int], str] = {}

    def strike(signum: int) -> list[int]:
        """Signal everything below the caller. Return the processes found."""
        reap()
        below = descendants(os.getpid())
        for pid in below:
            start = start_time(pid)
            if start is not None and alive(pid, start):
                names.setdefault((pid, start), command_name(pid))
                send(pid, start, signum)
        return below

    if not strike(signal.SIGTERM):
        return []
    kill_at = time.monotonic() + grace_s
    while time.monotonic() < kill_at and descendants(os.getpid()):
        time.sleep(0.005)
        reap()
    # Require two empty results in a row: the kernel's list of children can skip one while its sibling exits.
    empty_looks = 0
    before: list[int] = []
    while empty_looks < 2 and time.monotonic() < kill_at + give_up_s:
        below = strike(signal.SIGKILL)
        empty_looks = 0 if below else empty_looks + 1
        if below and below == before:  # no process forks: they only need time to die
            time.sleep(0.001)
        before = below
    return list(names.values())


def values_of(variable: str) -> Iterator[tuple[int, str]]:
    """Yield the processes, except the caller, that have this variable in their environment, each with its value.

    The kernel shows the environment as of the last exec. A fork shares its parent's, so a daemon that only forked is
    listed, while a variable that was set later is not seen. Unreadable processes are skipped.
    """
    name = os.fsencode(f"{variable}=")
    for pid in all_pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - see _stat
            if name in (text := file.read()) and pid != os.getpid():
                items = [item for item in text.split(b"\0") if item.startswith(name)]
                yield from ((pid, os.fsdecode(item.removeprefix(name))) for item in items)


def tagged_processes(variable: str, value: str) -> list[int]:
    return [pid for pid, tag in values_of(variable) if tag == value]


class _Usage:
    """Resource use of the children that ended since a given moment; for memory, the kernel only knows the overall
    peak."""

    def __init__(self) -> None:
        self.user_s = self.system_s = 0.0  # used before that moment
        self.largest: int | None = None  # since then; None if no moment was set

    def note(self, used: resource.struct_rusage) -> None:
        if self.largest is not None:
            self.largest = max(self.largest, used.ru_maxrss)


_USAGE = _Usage()


def forget_usage() -> None:
    """Make `tree_usage` exclude everything that ended before this call, which belongs to another trial."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    _USAGE.user_s, _USAGE.system_s, _USAGE.largest = used.ru_utime, used.ru_stime, 0


def tree_usage() -> dict[str, float | int]:
    """Return what the reaped children and their children have used.

    `max_rss_bytes` is that of the largest single process; after `forget_usage`, of those that `wait` or `reap`
    collected.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    largest = used.ru_maxrss if _USAGE.largest is None else _USAGE.largest
    return {
        "cpu_user_s": used.ru_utime - _USAGE.user_s,
        "cpu_system_s": used.ru_stime - _USAGE.system_s,
        "max_rss_bytes": largest * 1024,
    }


def tree_cpu_s() -> float:
    """Return the CPU seconds of everything that runs or ran below the caller."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = reaped.ru_utime + reaped.ru_stime
    for pid in descendants(os.getpid()):
        if fields := _stat(pid):
            # user and system time, its own and that of reaped children
            total += sum(map(int, fields[11:15])) / _TICKS_PER_S
    return total
