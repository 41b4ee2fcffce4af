"""Memory of this process, or of a server and all that it started."""

import os
from pathlib import Path

_PROC = Path("/proc")


def own_bytes() -> int:
    """Memory of this process without mapped files, after what the allocator merely keeps has been given back."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    return _bytes(os.getpid())


def tree_bytes(pid: int) -> int:
    """The same of a process and all its descendants; what they share counts once, where the kernel tells."""
    return sum(_bytes(each) for each in _family(pid))


def _family(pid: int) -> list[int]:
    """A process and its descendants; those that end meanwhile are left out."""
    found, looked = [pid], 0
    while looked < len(found):
        try:
            for task in (_PROC / str(found[looked]) / "task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, ValueError):
            pass
        looked += 1
    return found


def _bytes(pid: int) -> int:
    for file, fields in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        try:
            rows = [line.split() for line in (_PROC / str(pid) / file).read_text().splitlines()]
        except OSError:
            continue
        sizes = [int(row[1]) * 1024 for row in rows if row and row[0] in fields]
        if len(sizes) == len(fields):
            return sum(sizes)
    return 0
