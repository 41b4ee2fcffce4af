"""A process that continues in our own code, without the 0.2 s of CPU that a new interpreter needs to import it."""

import fcntl
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from benchhouse.processes.process_identity import OWNER


class Forked:
    """A child of this process, with the interface of a Popen: its pid, and `poll`, which also reaps it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = self.pid, 0
            with suppress(ChildProcessError):  # another caller has waited for it
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def can_fork() -> bool:
    """Whether forking is safe: not with a second thread, which may hold a lock that the child would wait for; nor below
    another orchestrator, whose mark in the environment only a new program can remove."""
    mark = f"{OWNER}=".encode()
    variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    return len(os.listdir("/proc/self/task")) == 1 and not any(each.startswith(mark) for each in variables)  # noqa: PTH208 - names, not paths


def fork(work: Callable[[], int | None], output: Path, without: Collection[str] = ()) -> Forked:
    """Run `work` in its own session; it inherits only this process's memory and current folder.

    Its output goes to `output`; its environment lacks the variables `without`. It ends when `work` returns, with the
    returned exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # otherwise the child would print it again
    # No signal may reach the child through a handler of ours.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            _become(work, output, without, before)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:  # a Ctrl-C in the meantime: otherwise no process would know of the child
            if pid:
                os.kill(pid, signal.SIGTERM)
            raise
    return Forked(pid)


def _become(work: Callable[[], int | None], output: Path, without: Collection[str], mask: Collection[int]) -> None:
    """Run the child. Ends with `os._exit`, because the parent's `atexit` functions and frames must not run in the
    child."""
    try:
        # inherited objects are never collected: that would close descriptors that belong to the child by then
        gc.freeze()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        _rewire(output)
        for name in without:
            os.environ.pop(name, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os._exit(work() or 0)
    except BaseException:  # noqa: BLE001 - nothing may go on in the code of the parent
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _rewire(output: Path) -> None:
    """Close everything that was open: locks stay held, and pipes have no end, while any process has them."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths
        if int(name) > 2:
            with suppress(OSError):  # the descriptor that lists them
                os.close(int(name))
    opened = [os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
    stdin, stdout = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in opened)  # 0, 1, and 2 may have been closed
    for target, source in enumerate((stdin, stdout, stdout)):
        os.dup2(source, target)
    for each in {stdin, stdout, *opened} - {0, 1, 2}:
        os.close(each)
