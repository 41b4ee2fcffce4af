"""Who owns a lock, a cgroup, a process: a name for one process that stays true after it has ended."""

import os
import re
from pathlib import Path

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
