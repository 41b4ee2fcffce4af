"""The workers of a host or task: forked if all others are busy, then given one trial after the other.

A worker runs no experiment code: each trial forks the experiment from it. When a trial ends, everything below the
worker has ended, except a process that its trials share. So the worker can continue, which saves the next trial the
copying of its memory. A worker ends, and another is forked, if it was stopped, could not seal, or is no longer a single
thread.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchhouse.processes import tree
from benchhouse.processes.cgroups import sweep_leftovers
from benchhouse.processes.owned_names import Scratch
from benchhouse.processes.process_identity import LEFTOVERS, TAG
from benchhouse.worker.server_logs import pair
from benchhouse.worker.shared_process import SharedProcessHolder
from benchhouse.worker.supervise import run_trial

_MEASURED, _SEALED = b"measured", b"sealed"
_GARBAGE_TRIALS = 64
_MOST_BYTES = 1 << 16  # of an order: an id and two paths


@dataclass
class PoolWorker:
    pid: int
    # packets: orders are sent, sealed trials are reported back, and EOF means that the worker has ended
    line: socket.socket
    job: str | None
    stopped: bool = False
    measured: bool = False  # nothing of its trial runs anymore: only writing and sealing remain


class WorkerPool:
    """Forks workers and sends them trials; the caller limits the number of simultaneous trials."""

    def __init__(self, quiet: tuple[signal.Signals, ...] = ()) -> None:
        self.workers: dict[int, PoolWorker] = {}
        self.quiet = quiet  # signals that a worker ignores until its trial handles them

    @property
    def measuring(self) -> int:
        """The number of trials whose experiments may still run."""
        return sum(worker.job is not None and not worker.measured for worker in self.workers.values())

    def lines(self) -> list[int]:
        """Return the descriptors to wait on."""
        return [worker.line.fileno() for worker in self.workers.values()]

    def begin(self, order: dict[str, Any], before_fork: Callable[[], None] = lambda: None) -> int:
        """Start the trial of `order` (`id`, `folder`, `log`). Return the pid of its worker."""
        for worker in self.workers.values():
            if worker.job is None and not worker.stopped:
                with contextlib.suppress(OSError):  # it has just ended
                    worker.line.send(json.dumps(order).encode())
                    worker.job, worker.measured = order["id"], False
                    return worker.pid
        before_fork()
        mine, theirs = pair()
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2))
        try:
            pid = os.fork()
            if pid == 0:
                for line in (mine, *(worker.line for worker in self.workers.values())):
                    line.close()
                for number in self.quiet:
                    signal.signal(number, signal.SIG_IGN)
                _become_worker(order, theirs, parent, before)
            self.workers[pid] = PoolWorker(pid, mine, order["id"])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return pid

    def stop(self, job: str | None = None, signum: int = signal.SIGTERM) -> None:
        """Stop the worker of this trial, or all busy workers; none of them gets another trial."""
        for worker in self.workers.values():
            if worker.job is not None and job in (None, worker.job):
                worker.stopped = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signum)

    def ended(self) -> Iterator[tuple[str, int]]:
        """Yield the trials that have ended completely, with their workers' exit codes. Reaps every child that has
        ended."""
        for worker in list(self.workers.values()):
            with contextlib.suppress(BlockingIOError):
                if job := self._hear(worker):
                    yield job
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in self.workers and (job := self._gone(self.workers[ended[0]], ended[1])):
                    yield job

    def hang_up(self) -> None:
        """Give no worker another trial: an idle one ends at once, a busy one when its trial is sealed."""
        for worker in self.workers.values():
            with contextlib.suppress(OSError):  # it has ended
                worker.line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the lines, which ends idle workers, and wait for the workers, because they clean up."""
        for worker in self.workers.values():
            worker.line.close()
        for pid in self.workers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.workers.clear()

    def _hear(self, worker: PoolWorker) -> tuple[str, int] | None:
        try:
            message = worker.line.recv(_MOST_BYTES)
        except ConnectionResetError:
            message = b""
        if not message:  # the worker closed its end, so it is about to exit
            return self._gone(worker, os.waitpid(worker.pid, 0)[1])
        if message == _MEASURED:
            worker.measured = True
            return None
        job, worker.job = worker.job, None
        if worker.stopped:
            worker.line.shutdown(socket.SHUT_WR)
        return (job, 0) if job is not None else None

    def _gone(self, worker: PoolWorker, status: int) -> tuple[str, int] | None:
        """Remove a worker that has ended; what a killed worker left behind was re-parented to this process and is ended
        too."""
        del self.workers[worker.pid]
        with contextlib.suppress(OSError):
            while message := worker.line.recv(_MOST_BYTES):
                status = 0 if message == _SEALED else status
        worker.line.close()
        if os.WIFSIGNALED(status):
            self._end_orphans()
        return (worker.job, os.waitstatus_to_exitcode(status)) if worker.job is not None else None

    def _end_orphans(self) -> None:
        """Kill the children that are not workers, which were re-parented when their worker was killed; only children
        are listed, so that no fork can escape."""
        tree.kill_tree(set(tree.children(os.getpid())) - set(self.workers), grace_s=0.0)
        sweep_leftovers()


def _become_worker(order: dict[str, Any], line: socket.socket, parent: int, mask: set[int]) -> NoReturn:
    """Run the rest of a process that was forked to run trials."""
    code = 1
    scratch: Scratch | None = None
    sharing = SharedProcessHolder()
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        tree.die_with_parent(signal.SIGKILL, parent)
        os.register_at_fork(after_in_child=line.close)  # the experiment must not use the line
        output = os.memfd_create("output")  # a worker hardly ever prints: a file for each would be wasteful
        null = os.open(os.devnull, os.O_RDWR)
        for handle, stream in ((null, 0), (output, 1), (output, 2)):
            os.dup2(handle, stream)
        os.close(null)
        os.close(output)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        gc.disable()  # garbage collection touches pages that are shared with the host and with every experiment
        trials = 0
        scratch = Scratch(LEFTOVERS)
        while (code := _work(order, scratch, sharing, lambda: _send(line, _MEASURED))) == 0 and _may_go_on():
            if not scratch.renew():
                scratch.remove()
                scratch = Scratch(LEFTOVERS)
            line.send(_SEALED)
            trials += 1
            if trials % _GARBAGE_TRIALS == 0:
                gc.collect()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            text = line.recv(_MOST_BYTES)
            if not text:
                break
            order = json.loads(text)
    except BaseException:  # noqa: BLE001 - it is printed to the job's log, and the process ends
        traceback.print_exc()
        _keep_output(order["log"])
    finally:
        sharing.end()
        if scratch:
            scratch.remove()
        os._exit(code)  # in a fork, the host's atexit functions and the frames above must not run


def _send(line: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the receiver is gone, and this process is about to end
        line.send(message)


def _may_go_on() -> bool:
    """Whether the worker is single-threaded: a fork copies only one thread, so locks of others would stay locked."""
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - names, not paths


def _work(order: dict[str, Any], scratch: Scratch, sharing: SharedProcessHolder, measured: Callable[[], None]) -> int:
    """Run one trial. Return its exit code."""
    code = 1
    try:
        os.environ[TAG] = order["id"]
        code = run_trial(Path(order["folder"]), scratch, measured, sharing)
    except BaseException:  # noqa: BLE001 - it is printed to the job's log, and the process ends
        traceback.print_exc()
    _keep_output(order["log"])
    return code


def _keep_output(log: str) -> None:
    """Append what the worker has printed, if anything, to the job's log."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        if size := os.fstat(1).st_size:
            with open(log, "ab") as file:  # noqa: PTH123
                file.write(os.pread(1, size, 0))
            os.truncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
