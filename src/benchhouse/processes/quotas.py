"""The limits of cgroups on this process: the lowest of its own and those above it."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # v1 writes a number near 2^63 for "no limit"


def cpu_quota() -> float | None:
    """Return the limit in cores; None if no cgroup has one."""
    limits = []
    for folder in _cgroups("cpu"):
        fields = (_read(folder / "cpu.max") or "").split()
        if not fields and (quota := _read(folder / "cpu.cfs_quota_us")):
            fields = [quota, _read(folder / "cpu.cfs_period_us") or "100000"]
        if len(fields) == 2 and fields[0].isdigit() and int(fields[1]):
            limits.append(int(fields[0]) / int(fields[1]))
    return min(limits, default=None)


def memory_limit() -> int | None:
    """Return the limit in bytes; None if no cgroup has one."""
    limits = []
    for folder in _cgroups("memory"):
        text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or ""
        if text.isdigit() and int(text) < _UNLIMITED:
            limits.append(int(text))
    return min(limits, default=None)


def _cgroups(controller: str) -> list[Path]:
    """Return the folders of this process's cgroup and all above it, for v2 and the v1 controller."""
    folders: list[Path] = []
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        _, names, place = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = _CGROUP / (controller if names else "")
        path = root / place.lstrip("/")
        folders += [folder for folder in (path, *path.parents) if folder.is_relative_to(root)]
    return folders


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def usable_cores() -> int:
    """Return the whole cores that this process may use, by its affinity and its cgroup; at least one."""
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else min(cores, max(int(quota), 1))
