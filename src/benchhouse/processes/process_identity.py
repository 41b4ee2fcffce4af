"""The identity of an owner of a lock, cgroup, or process: it stays unique after that process has ended."""

import os
import re
from functools import cache
from pathlib import Path

from benchhouse.processes.tree import alive, start_time

OWNER = "BENCHHOUSE_OWNER"  # variable of everything that an orchestrator starts: its identity
TAG = "BENCHHOUSE_TRIAL"  # variable of everything that a trial starts: its id
LEFTOVERS = "benchhouse"  # prefix of the names of cgroups and scratch folders
_IDENTITY = re.compile(r"p(?P<pid>\d+)-s(?P<start>\d+)-n(?P<namespace>\d+)")


def identity() -> str:
    """Return the identity of the caller: pid, start time, and the pid namespace in which these two are valid."""
    return f"p{os.getpid()}-s{start_time(os.getpid())}-n{_namespace()}"


def pid_of(text: str) -> int | None:
    owner = _IDENTITY.fullmatch(text)
    return int(owner["pid"]) if owner else None


def pid_here(text: str) -> int | None:
    """Return the pid of a living process in this pid namespace; None for other namespaces, where it means another
    process."""
    owner = _IDENTITY.fullmatch(text)
    if owner is None or int(owner["namespace"]) != _namespace() or not alive(int(owner["pid"]), int(owner["start"])):
        return None
    return int(owner["pid"])


def is_gone(text: str) -> bool:
    """Whether that process has ended. One in another pid namespace can't be checked, so it counts as alive."""
    owner = _IDENTITY.fullmatch(text)
    if owner is None or int(owner["namespace"]) != _namespace():
        return False
    return not alive(int(owner["pid"]), int(owner["start"]))


@cache
def boot() -> str:
    """Return the boot id of this machine, since the first pid namespace has the same number on all machines."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
