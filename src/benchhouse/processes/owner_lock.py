"""A lock that one process holds at a time: its file contains the owner, and the lock ends with the process."""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from benchhouse.processes.process_identity import identity, pid_here
from benchhouse.schema.errors import BenchError


class OwnerLock:
    """The lock of something that one process works on; its file identifies the owner."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock. Return whether it is ours now. Raises OSError if the file can't be written."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(handle):
            os.close(handle)
            return False
        self._handle = handle
        os.ftruncate(handle, 0)
        os.pwrite(handle, identity().encode(), 0)
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None

    def owner(self) -> int | None:
        """Return the pid of the owner, or None if there is none. 0 means that the owner has not written it yet, or is
        on another machine or container, where the number means a different process."""
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # no other error: an owner that can't be seen may exist
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(handle, 100, 0).decode()  # right after the lock was taken, the text is the previous owner's
            return pid_here(text) or 0
        finally:
            os.close(handle)


def interrupt(owner: Callable[[], int | None], what: str, wait_s: float) -> int | None:
    """End the process that works on something, as Ctrl-C does. Return its pid; None if there was none."""
    deadline = time.monotonic() + wait_s
    told: int | None = None
    while (pid := owner()) is not None:
        if pid and pid != told:
            try:
                with contextlib.suppress(ProcessLookupError):  # it has ended in the meantime
                    os.kill(pid, signal.SIGINT)
            except PermissionError as error:
                raise BenchError(
                    f"{what} is being worked on by process {pid}, which is somebody else's", "ask them to end it"
                ) from error
            told = pid
        if time.monotonic() > deadline:
            if not pid:
                raise BenchError(
                    f"{what} is being worked on by a process of another machine or container", "end it there"
                )
            raise BenchError(f"process {pid} did not end within {wait_s:g} s", f"kill -9 {pid}, then stop again")
        time.sleep(0.05)
    return told


def _lock(handle: int) -> bool:
    """Take the lock. Callers of `owner` hold it for a moment, so this tries more than once."""
    for _ in range(20):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.01)
    return False
