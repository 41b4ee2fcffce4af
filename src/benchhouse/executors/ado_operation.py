"""Holds one operation of ado: `python -m benchhouse.executors.ado_operation ado create operation ...`.

Ray starts processes that leave their parents. All of them come back to this one (a subreaper) and are ended with the
operation, or when standard input ends: then whoever asked for it is gone.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_SUBREAPER = 36  # prctl
_GRACE_S = 5.0


def hold(command: list[str]) -> int:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            ready, _, _ = select.select([0], [], [], 0.2)
            if ready and not os.read(0, 1024):
                return 130
        return process.returncode
    finally:
        end_all()


def end_all() -> None:
    """Everything below this process: asked first, then killed."""
    deadline = time.monotonic() + _GRACE_S
    while found := _descendants():
        number = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.1)


def _descendants() -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z" or int(fields[1]) == os.getpid():
                    parents[int(entry.name)] = int(fields[1])
    found, todo = set[int](), {os.getpid()}
    while todo:
        todo = {pid for pid, parent in parents.items() if parent in todo} - found
        found |= todo
    return found


if __name__ == "__main__":
    sys.exit(hold(sys.argv[1:]))
