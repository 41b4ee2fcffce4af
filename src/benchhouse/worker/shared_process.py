"""A process of an experiment that its worker's trials share, one after the other: `runtime: {shared: true}`.

What takes long to load, a library or a model on a GPU, is then loaded once. In return a trial finds what those before
it left in memory, so it is told which number it has. Limits, outcomes, logs and evidence are those of any trial: what
breaks one ends the process, and the next trial gets another.
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
_ENDS = 3  # of a capture: stdout, stderr, and where logs are asked for


@dataclass(frozen=True)
class Done:
    """What a shared process tells when a trial of its is over: what it used for that."""

    cpu_s: float
    peak_rss_bytes: int


class SharedProcess:
    """As its worker holds it. It is forked for its first trial; its cage lives as long as it does."""

    def __init__(self, spec: TrialSpec, cage: Cage) -> None:
        self.needs = _needs(spec)
        self.cage = cage
        self.pid = 0
        self.trials = 1  # the one under way included
        self.line: socket.socket
        self.deaf = False

    def pair(self) -> socket.socket:
        """The child's end of a new line."""
        self.line, theirs = pair()
        return theirs

    def begin(self, spec: TrialSpec, folder: TrialFolder, capture: Capture, scratch: Scratch) -> None:
        """Give it the next trial. One that has ended meanwhile is found out by whoever waits for it."""
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
        """What it said, if it did."""
        if self.deaf:
            return None
        try:
            data = self.line.recv(_MOST_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:  # it closed the line, so it is no good for another trial; its end is waited for
            self.deaf = True
            return None
        with contextlib.suppress(ValueError, TypeError):
            return Done(**json.loads(data))
        return None

    def serve(
        self, line: socket.socket, spec: TrialSpec, folder: TrialFolder, scratch: Scratch, logs: ServerLogs
    ) -> None:
        """In the forked child: this trial, and those that come, until the worker has no more."""
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
        """It gets no more trials. By itself it is ended here, so that what it left behind can be told from it."""
        self.line.close()
        self.deaf = True
        if alive:
            tree.send(self.pid, None, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                tree.wait(self.pid)


class SharedProcessHolder:
    """What a worker holds between its trials: at most one process, whose next trial must ask for the same."""

    def __init__(self) -> None:
        self.process: SharedProcess | None = None

    @staticmethod
    def may_share(spec: TrialSpec) -> bool:
        """A limit of CPU time holds for a process, not for one of its trials."""
        return spec.runtime.shared and spec.limits.cpu is None

    def take(self, spec: TrialSpec) -> SharedProcess | None:
        """The process for this trial, which is no longer held here; one that can't be used is ended."""
        process = self.process
        if process and self.may_share(spec) and process.needs == _needs(spec) and tree.alive(process.pid, None):
            self.process = None
            return process
        self.end()
        return None

    def keep(self, process: SharedProcess, folder: TrialFolder) -> bool:
        """Hold it for the next trial; False where it can't go on, as it has left other processes behind, or could still
        write to the evidence in `folder`, which is about to be sealed."""
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
    """What trials must have in common to share a process."""
    return spec.experiment, spec.code_digest, spec.environment, spec.limits, spec.resources, spec.runtime


def _holds(pid: int, folder: TrialFolder) -> bool:
    """Whether it has a file below `folder` open or mapped; so, too, where that can't be known.

    Only what an experiment has put there itself can it have mapped and closed.
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
    """Python's own streams, anew: whatever an experiment did to them, the next trial's words go where they should."""
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False) for number in (1, 2)
    )


def leave_streams() -> None:
    """All that was printed is in the pipes, and what is printed between trials belongs to none."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    tree.flush_c_streams()
    _put(*((_high(os.open(os.devnull, os.O_WRONLY)), target) for target in (1, 2)))


def _high(handle: int) -> int:
    """The same, as neither 0, 1 nor 2: an experiment may have closed those."""
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
    """From now on the kernel's VmHWM is that of this trial; where it can't be told so, that of all before it, too."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
