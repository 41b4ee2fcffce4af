"""The process of an experiment: its worker forks it, enforces its limits, and follows it until it is over.

A process that trials share (`runtime: {shared: true}`) does not end with a trial: it reports that it is done, and gets
the next one (`worker/shared_process.py`).
"""

import contextlib
import gc
import math
import os
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from benchhouse.processes import tree
from benchhouse.processes.cgroups import Cage
from benchhouse.processes.owned_names import Scratch
from benchhouse.processes.services import end_of
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.service import ServiceFolder
from benchhouse.schema.trial import TrialSpec
from benchhouse.worker.child import run_experiment
from benchhouse.worker.monitors.watch import TrialMonitor
from benchhouse.worker.output import Capture
from benchhouse.worker.shared_process import Done, SharedProcess, reset_streams
from benchhouse.worker.stream import Redact

STOPS = (signal.SIGTERM, signal.SIGINT)
_TICK_S = 0.25
_LOOK_S = 0.5  # for services that the trial has started
_ELSEWHERE_S = 12.0  # for servers on other nodes to end


@dataclass(frozen=True)
class TrialSession:
    """What a worker holds for one attempt at a trial."""

    spec: TrialSpec
    folder: TrialFolder  # the evidence, not sealed yet
    capture: Capture
    scratch: Scratch  # where the experiment works and writes its result
    cage: Cage
    shared: SharedProcess | None  # the process that trials share; None if this trial has its own
    redact: Redact
    secrets: Sequence[str]  # values that must not be in its evidence


class Bell:
    """Catches SIGUSR2, the batch system's warning that this job ends soon. `handle` becomes readable to wake
    sleepers."""

    def __init__(self) -> None:
        self.rung = False
        self.handle, self._other = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGUSR2, self._ring)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rung = True
        os.write(self._other, b"!")

    def close(self) -> None:
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        os.close(self.handle)
        os.close(self._other)


@dataclass
class ExperimentEnd:
    """How the experiment's part of a trial ended."""

    status: int  # in the format of waitpid; 0 for a process that stays alive
    stopped_by: str = ""  # the limit that the worker enforced
    oom_kills: int = 0
    done: Done | None = None  # report of a shared process that stays alive

    @property
    def signal(self) -> int:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0


@dataclass
class TrialProcess:
    """The process that runs a trial; `shared` is set if it may run more trials."""

    pid: int
    shared: SharedProcess | None
    done: Done | None = None

    def is_over(self) -> bool:
        if self.shared and (done := self.shared.heard()):
            self.done = done
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def handles(self) -> list[int]:
        return [self.shared.line.fileno()] if self.shared and not self.shared.deaf else []


def follow(session: TrialSession, watch: TrialMonitor) -> ExperimentEnd:
    """Run the experiment and follow it until it is over or has been ended.

    It runs in the shared process if there is one, which is forked here for its first trial; otherwise in its own.
    """
    bell = Bell()
    spec, cage, shared = session.spec, session.cage, session.shared
    if shared and shared.pid:
        shared.begin(spec, session.folder, session.capture, session.scratch)
        running = TrialProcess(shared.pid, shared)
    else:
        running = TrialProcess(_fork(session), shared)
    session.capture.parent_side()
    watch.begin(cage.folders, spec)
    try:
        stopped_by = _wait_for_end(running, session, watch, bell)
    finally:
        bell.close()
    if stopped_by:
        return ExperimentEnd(int(signal.SIGKILL), stopped_by, cage.oom_kills())
    status = 0 if running.done else tree.wait(running.pid)
    if spec.limits.cpu is not None and cage.over_cpu(spec.limits.cpu):
        stopped_by = "cpu"  # RLIMIT_CPU ended one of its children, and the experiment continued without it
    return ExperimentEnd(status, stopped_by, cage.oom_kills(), running.done)


def _wait_for_end(running: TrialProcess, session: TrialSession, watch: TrialMonitor, bell: Bell) -> str:
    """Wait until it is over, or end it for the limit that is returned. If it ends on its own, it is not reaped here."""
    spec, cage, capture = session.spec, session.cage, session.capture
    deadline = time.monotonic() + spec.limits.wall if spec.limits.wall is not None else math.inf
    tick_s = _TICK_S if spec.limits.cpu is not None else _LOOK_S if spec.monitors else math.inf
    with _end_of(running.pid) as end:
        while not running.is_over():
            left = deadline - time.monotonic()
            stopped_by = ""
            if left <= 0:
                stopped_by = "wall"
            elif bell.rung:
                stopped_by = "job"
            elif spec.limits.cpu is not None and cage.over_cpu(spec.limits.cpu):
                stopped_by = "cpu"
            if stopped_by:
                watch.end()
                end_elsewhere(session.folder)
                tree.kill_tree([running.pid], grace_s=1.0)
                cage.kill()
                return stopped_by
            most_s = min(tick_s if end >= 0 else _TICK_S, left, watch.due_s)
            _wait([end, bell.handle, *running.handles(), *capture.filenos()], most_s)
            capture.pump(0.0)
            watch.look(session.folder.services)
        watch.end()  # before it is reaped, because its I/O counters are gone afterwards
    return ""


@contextlib.contextmanager
def _end_of(pid: int) -> Iterator[int]:
    """Yield a descriptor that becomes readable when the process ends; -1 if the kernel cannot provide one."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        yield -1
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _wait(handles: Iterable[int], most_s: float) -> None:
    poll = select.poll()
    for handle in handles:
        if handle >= 0:
            poll.register(handle, select.POLLIN)
    poll.poll(None if math.isinf(most_s) else most_s * 1000)


def _fork(session: TrialSession) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    worker = os.getpid()
    shared = session.shared
    theirs = shared.pair() if shared else None
    pid = os.fork()
    if pid == 0:
        _become_experiment(session, worker, theirs)
    if shared and theirs:
        shared.pid = pid
        theirs.close()
    return pid


def _become_experiment(session: TrialSession, worker: int, line: socket.socket | None) -> NoReturn:
    """Become the experiment in the forked child; `line` is its end of the line to the worker if trials share the
    process."""
    spec, folder, scratch = session.spec, session.folder, session.scratch
    code = 1
    try:
        gc.freeze()  # its garbage collection only covers its own objects, so it copies no page of the worker's
        gc.enable()
        os.setsid()
        tree.die_with_parent(signal.SIGKILL, worker)
        for number in (*STOPS, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        logs = session.capture.child_side()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0, closefd=False)
        session.cage.enter()
        if session.shared and line:
            session.shared.serve(line, spec, folder, scratch, logs)
        else:
            reset_streams()
            os.chdir(scratch.work)
            run_experiment(spec, folder, scratch.work, scratch.result, logs)
        code = 0
    except BaseException:  # noqa: BLE001 - it is printed to the trial's log, and the process ends
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # in a fork, the worker's atexit functions and the frames above must not run


def end_elsewhere(trial: TrialFolder, most_s: float = _ELSEWHERE_S) -> None:
    """Let servers on other nodes end in an orderly way if the experiment did not end them: killed ones leave
    folders."""
    if not trial.elsewhere.is_dir():
        return
    folders = [ServiceFolder(path) for path in trial.elsewhere.iterdir()]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.stop.touch()
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline and any(not end_of("", folder) for folder in folders):
        time.sleep(0.05)
    shutil.rmtree(trial.elsewhere, ignore_errors=True)
