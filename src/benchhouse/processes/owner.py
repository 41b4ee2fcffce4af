"""Who owns a lock, a cgroup, a process: a name for one process that stays true after it has ended."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OWNER = "BENCHHOUSE_OWNER"  # in the environment of all that an orchestrator starts: its identity
TAG = "BENCHHOUSE_TRIAL"  # in the environment of all that a trial starts: its id
LEFTOVERS = "benchhouse"  # how the names of cgroups and scratch folders begin
_IDENTITY = re.compile(r"p(?P<pid>\d+)-s(?P<start>\d+)-n(?P<namespace>\d+)")


def identity() -> str:
    """The caller: pid, start time, and the pid namespace in which these two mean something."""
    return f"p{os.getpid()}-s{_start(os.getpid())}-n{_namespace()}"


def pid_of(text: str) -> int | None:
    found = _IDENTITY.fullmatch(text)
    return int(found["pid"]) if found else None


def is_gone(text: str) -> bool:
    """Whether that process has ended; one of another pid namespace can't be judged, so it counts as alive."""
    found = _IDENTITY.fullmatch(text)
    if found is None or int(found["namespace"]) != _namespace():
        return False
    return _start(int(found["pid"])) != int(found["start"])


def _start(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process that runs; None when there is none, or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name before may itself hold spaces and parentheses
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def show_as(command: Sequence[str], name: str, value: str) -> bool:
    """Have `/proc` show this process, and all that it forks, as a command with that variable in its environment.

    The kernel shows the blocks that the last exec left, whatever was set since, so they are written over in place: the
    command as far as it fits; the variable first, then as many of the others as still fit, the longest left out first.
    C code has its own copies of them by then. False where there are no such blocks, or no room.
    """
    import ctypes

    text = Path("/proc/self/stat").read_bytes()
    shown = Path("/proc/self/environ").read_bytes()
    arguments, arguments_end, variables, variables_end = map(int, text[text.rindex(b")") + 2 :].split()[45:49])
    mark = os.fsencode(f"{name}={value}") + b"\0"
    if not arguments or variables_end - variables != len(shown) or len(mark) > len(shown):
        return False
    os.environ[name] = value
    for key, given in os.environ.items():
        os.putenv(key, given)  # from here on they lie on the heap
    others = [item + b"\0" for item in shown.split(b"\0") if item and not item.startswith(os.fsencode(f"{name}="))]
    for longest in sorted(others, key=len, reverse=True):
        if len(mark) + sum(map(len, others)) <= len(shown):
            break
        others.remove(longest)
    _write_over(ctypes, variables, variables_end, b"".join([mark, *others]))
    _write_over(ctypes, arguments, arguments_end, b"".join(os.fsencode(word) + b"\0" for word in command))
    return True


def _write_over(ctypes: Any, begin: int, end: int, data: bytes) -> None:
    room = end - begin
    ctypes.memmove(begin, data[: room - 1].ljust(room, b"\0"), room)
