"""Memory of this process, or of a server and all that it started."""

import os
from pathlib import Path

from benchhouse.processes.tree import descendants


def own_bytes() -> int:
    """Memory of this process without mapped files, after what the allocator merely keeps has been given back."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    return _bytes(os.getpid())


def tree_bytes(pid: int) -> int:
    """The same of a process and all its descendants; what they share counts once, where the kernel tells."""
    return sum(map(_bytes, (pid, *descendants(pid))))


def _bytes(pid: int) -> int:
    for file, fields in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        try:
            rows = [line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines()]
        except OSError:
            continue
        sizes = [int(row[1]) * 1024 for row in rows if row and row[0] in fields]
        if len(sizes) == len(fields):
            return sum(sizes)
    return 0
