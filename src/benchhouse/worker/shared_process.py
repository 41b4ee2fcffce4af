"""An experiment process that the trials of its worker share, one after the other: `runtime: {shared: true}`.

A library or a model on a GPU that takes long to load is then loaded only once. In return a trial finds what earlier
ones left in memory, so it records its number. Limits, outcomes, logs, and evidence are those of any trial: a failure
that breaks a trial ends the process, and the next trial gets another.
"""

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.evidence.folder import read_spec
from benchhouse.processes import tree
from benchhouse.processes.cgroups import Cage
from benchhouse.processes.owned_names import Scratch
from benchhouse.processes.process_identity import TAG
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.service import SECRET
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker.child import run_experiment
from benchhouse.worker.output import Capture
from benchhouse.worker.server_logs import ServerLogs, pair, receive

_MOST_BYTES = 1 << 16
_ENDS = 3  # of a capture: stdout, stderr, and the socket for log requests


@dataclass(frozen=True)
class Done:
    """What a shared process used for a trial; it reports this when the trial is over."""

    cpu_s: float
    peak_rss_bytes: int


class SharedProcess:
    """The worker's handle of a shared process, which is forked for its first trial; its cage lives until it ends."""

    def __init__(self, spec: TrialSpec, cage: Cage) -> None:
        self.needs = _needs(spec)
        self.cage = cage
        self.pid = 0
        self.trials = 1  # including the current one
        self.line: socket.socket
        self.deaf = False

    def pair(self) -> socket.socket:
        """Create a new line. Return the child's end."""
        self.line, theirs = pair()
        return theirs

    def begin(self, spec: TrialSpec, folder: TrialFolder, capture: Capture, scratch: Scratch) -> None:
        """Start the next trial. If the process has ended in the meantime, the caller that waits for it finds out."""
        self.trials += 1
        self.cage.count_anew()
        order = {
            "folder": str(folder.path),
            "work": str(scratch.work),
            "result": str(scratch.result),
            "environment": {TAG: spec.trial_id, SECRET: os.environ[SECRET]},
        }
        with contextlib.suppress(OSError):
            socket.send_fds(self.line, [json.dumps(order).encode()], capture.child_ends())

    def heard(self) -> Done | None:
        """Return what the process reported; None if it has not reported."""
        if self.deaf:
            return None
        try:
            data = self.line.recv(_MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:  # it closed the line, so it can't run another trial; its end is waited for
            self.deaf = True
            return None
        with contextlib.suppress(ValueError, TypeError):
            return Done(**json.loads(data))
        return None

    def serve(
        self, line: socket.socket, spec: TrialSpec, folder: TrialFolder, scratch: Scratch, logs: ServerLogs
    ) -> None:
        """In the forked child, run this trial and all that follow, until the worker has no more."""
        self.line.close()
        work, result, before = scratch.work, scratch.result, 0.0
        while True:
            reset_streams()
            os.chdir(work)
            run_experiment(spec, folder, work, result, logs)
            logs.close()
            leave_streams()
            line.send(json.dumps({"cpu_s": _cpu_s() - before, "peak_rss_bytes": _peak_rss_bytes()}).encode())
            data, handles = receive(line, _ENDS)
            if not data:
                return
            order: dict[str, Any] = json.loads(data)
            before = _cpu_s()
            _forget_peak()
            out, err, requester = map(_high, handles)
            _put((out, 1), (err, 2))
            logs = ServerLogs(socket.socket(fileno=requester))
            os.environ.update(order["environment"])
            work, result, folder = Path(order["work"]), Path(order["result"]), TrialFolder(Path(order["folder"]))
            spec = read_spec(folder)

    def close(self, *, alive: bool) -> None:
        """Give the process no more trials. It is killed here, separately, so that what it left behind can be
        distinguished."""
        self.line.close()
        self.deaf = True
        if alive:
            tree.send(self.pid, None, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                tree.wait(self.pid)


class SharedProcessHolder:
    """Holds at most one process between a worker's trials; the next trial must have the same requirements."""

    def __init__(self) -> None:
        self.process: SharedProcess | None = None

    @staticmethod
    def may_share(spec: TrialSpec) -> bool:
        """Whether a trial may share a process. CPU limits prevent this: they apply to a process, not to one of its
        trials."""
        return spec.runtime.shared and spec.limits.cpu is None

    def take(self, spec: TrialSpec) -> SharedProcess | None:
        """Return the process for this trial and stop holding it; one that can't be used is ended, and None is
        returned."""
        process = self.process
        if process and self.may_share(spec) and process.needs == _needs(spec) and tree.alive(process.pid, None):
            self.process = None
            return process
        self.end()
        return None

    def keep(self, process: SharedProcess, folder: TrialFolder) -> bool:
        """Hold the process for the next trial. Return False if it can't continue, because it left other processes
        behind or could still write to the evidence in `folder`, which is about to be sealed."""
        if process.deaf or tree.descendants(os.getpid()) != [process.pid] or _holds(process.pid, folder):
            return False
        self.process = process
        return True

    def end(self) -> None:
        if process := self.process:
            self.process = None
            process.close(alive=True)
            process.cage.kill()
            process.cage.remove()


def _needs(spec: TrialSpec) -> tuple[Any, ...]:
    """Return what trials must have in common to share a process."""
    return spec.experiment, spec.code_digest, spec.environment, spec.limits, spec.resources, spec.runtime


def _holds(pid: int, folder: TrialFolder) -> bool:
    """Whether the process has a file below `folder` open or mapped; also True if that can't be determined.

    Only files that an experiment put there itself can be mapped but closed.
    """
    inside = f"{os.path.realpath(folder.path)}/"
    try:
        handles = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names, not paths
        opened = [os.readlink(f"/proc/{pid}/fd/{handle}") for handle in handles]  # noqa: PTH115 - as text
        mapped = Path(f"/proc/{pid}/maps").read_bytes() if folder.artifacts.exists() else b""
    except OSError:
        return True
    return any(name.startswith(inside) for name in opened) or os.fsencode(inside) in mapped


def reset_streams() -> None:
    """Replace Python's streams, so that the output of the next trial is correct whatever an experiment did to them."""
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False) for number in (1, 2)
    )


def leave_streams() -> None:
    """Flush all output into the pipes, and discard what is printed between trials."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    tree.flush_c_streams()
    _put(*((_high(os.open(os.devnull, os.O_WRONLY)), target) for target in (1, 2)))


def _high(handle: int) -> int:
    """Return the same file as a descriptor that is not 0, 1, or 2: an experiment may have closed those."""
    if handle > 2:
        return handle
    made = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(handle)
    return made


def _put(*pairs: tuple[int, int]) -> None:
    for handle, target in pairs:
        os.dup2(handle, target)
        os.close(handle)


def _cpu_s() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _peak_rss_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    """Reset the kernel's VmHWM to cover only this trial; if that is not permitted, it covers all earlier ones, too."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
