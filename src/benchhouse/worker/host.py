"""A warm worker: imports once, then forks one process per trial, so that a trial costs milliseconds, not imports.

It speaks lines of JSON. In: `{"id", "folder", "log"}` starts a trial, `{"stop": id}` ends one. Out: `{"id", "pid"}`
when a trial's worker has started, `{"id", "exit"}` when it has ended and nothing of it is left. When its input ends,
the orchestrator is gone: everything below is ended, then the host itself.
"""

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

from benchhouse.schema.owner import OWNER, identity
from benchhouse.worker import processes
from benchhouse.worker.limits import sweep_cages
from benchhouse.worker.owned import left_processes, processes_of, sweep_scratch
from benchhouse.worker.supervise import LEFTOVERS, TAG, run_trial
from benchhouse.worker.warming import warm_up

_GRACE_S = 3.0


def serve() -> int:
    processes.become_subreaper()
    with contextlib.suppress(PermissionError):  # started by hand it may lead its session already
        os.setsid()  # a Ctrl-C at the terminal is the orchestrator's to handle
    _sweep()
    warm_up()
    wakeup, bell = os.pipe()
    for end in (wakeup, bell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: _stop_all_and_exit())
    os.set_blocking(0, False)
    _say({"ready": os.getpid()})
    workers: dict[int, str] = {}
    buffer = b""
    while True:
        select.select([0, wakeup], [], [])
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        _reap(workers)
        try:
            chunk = os.read(0, 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            _stop_all_and_exit()
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            _obey(json.loads(line), workers)


def _sweep() -> None:
    """End what an earlier host of this orchestrator left when it was killed."""
    if (mine := os.environ.get(OWNER)) == identity():
        processes.kill_tree(left_processes(), grace_s=0.0)  # of other hosts: this one is its own owner
    elif mine:
        processes.kill_tree(processes_of(mine), grace_s=0.0)
    sweep_cages(LEFTOVERS)
    sweep_scratch(LEFTOVERS)


def _obey(order: dict[str, Any], workers: dict[int, str]) -> None:
    if "stop" in order:
        for pid, job in workers.items():
            if job == order["stop"]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        return
    host = os.getpid()
    pid = os.fork()
    if pid == 0:
        become_worker(order, host)
    workers[pid] = order["id"]
    _say({"id": order["id"], "pid": pid, "start": processes.start_time(pid)})


def become_worker(order: dict[str, Any], host: int) -> NoReturn:
    """The rest of a process that was forked for one trial."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        processes.die_with_parent(signal.SIGKILL, host)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ[TAG] = order["id"]
        code = run_trial(Path(order["folder"]))
    except BaseException:  # noqa: BLE001 - it is printed to the job's log, and the process ends
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
            if os.fstat(1).st_size == 0:
                Path(order["log"]).unlink()  # it had nothing to say
        os._exit(code)


def _reap(workers: dict[int, str]) -> None:
    """Collect ended workers; what a killed worker left behind was re-parented to this process and is ended too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in workers:
            continue
        job = workers.pop(pid)
        if os.WIFSIGNALED(status):
            end_orphans(workers)
        _say({"id": job, "exit": os.waitstatus_to_exitcode(status)})


def end_orphans(workers: Collection[int]) -> None:
    """Children that are no workers came here when theirs was killed; asking for children only, no fork can slip in."""
    processes.kill_tree(set(processes.children(os.getpid())) - set(workers), grace_s=0.0)
    sweep_cages(LEFTOVERS)
    sweep_scratch(LEFTOVERS)


def _stop_all_and_exit() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    processes.kill_descendants(grace_s=_GRACE_S)
    os._exit(0)


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")
