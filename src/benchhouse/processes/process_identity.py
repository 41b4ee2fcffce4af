"""Who owns a lock, a cgroup, a process: a name for one process that stays true after it has ended."""

import os
import re
from functools import cache
from pathlib import Path

from benchhouse.processes.tree import alive, start_time

OWNER = "BENCHHOUSE_OWNER"  # in the environment of all that an orchestrator starts: its identity
TAG = "BENCHHOUSE_TRIAL"  # in the environment of all that a trial starts: its id
LEFTOVERS = "benchhouse"  # how the names of cgroups and scratch folders begin
_IDENTITY = re.compile(r"p(?P<pid>\d+)-s(?P<start>\d+)-n(?P<namespace>\d+)")


def identity() -> str:
    """The caller: pid, start time, and the pid namespace in which these two mean something."""
    return f"p{os.getpid()}-s{start_time(os.getpid())}-n{_namespace()}"


def pid_of(text: str) -> int | None:
    owner = _IDENTITY.fullmatch(text)
    return int(owner["pid"]) if owner else None


def pid_here(text: str) -> int | None:
    """Of a process that lives, as this process may call it; None of one elsewhere, whose number is another's here."""
    owner = _IDENTITY.fullmatch(text)
    if owner is None or int(owner["namespace"]) != _namespace() or not alive(int(owner["pid"]), int(owner["start"])):
        return None
    return int(owner["pid"])


def is_gone(text: str) -> bool:
    """Whether that process has ended; one of another pid namespace can't be judged, so it counts as alive."""
    owner = _IDENTITY.fullmatch(text)
    if owner is None or int(owner["namespace"]) != _namespace():
        return False
    return not alive(int(owner["pid"]), int(owner["start"]))


@cache
def boot() -> str:
    """Of which boot of which machine an identity is: the first pid namespace has the same number on all of them."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
