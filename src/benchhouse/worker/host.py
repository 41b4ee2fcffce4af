"""A warm host: imports once, then forks the workers of trials, so that a trial costs milliseconds, not imports.

The protocol is lines of JSON. Input: `{"id", "folder", "log"}` starts a trial, `{"stop": id}` ends one, `{"placed":
facts}` adds facts about this place to the evidence, before the first trial. Output: `{"id", "pid"}` when a trial's
worker has started, `{"id", "exit"}` when it has ended and nothing of it is left. The end of the input means that the
orchestrator is gone: everything below is ended, then the host itself.
"""

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

from benchhouse.processes import tree
from benchhouse.processes.cgroups import sweep_leftovers
from benchhouse.processes.owned_names import left_processes
from benchhouse.processes.process_identity import OWNER, identity
from benchhouse.worker.batch import PLACED
from benchhouse.worker.pool import WorkerPool
from benchhouse.worker.warmup import warm_up, warm_up_for

_GRACE_S = 3.0


def serve() -> int:
    """Serve until the orchestrator is gone, or SIGTERM arrives."""
    tree.become_subreaper()
    with contextlib.suppress(PermissionError):  # if started by hand, it may lead its session already
        os.setsid()  # the orchestrator handles a Ctrl-C at the terminal
    _sweep()
    warm_up()
    wakeup, bell = os.pipe()
    for end in (wakeup, bell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pool = WorkerPool()
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        _report({"ready": os.getpid()})
        _serve_orders(pool, wakeup)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all(pool)
    return 0


def _serve_orders(pool: WorkerPool, wakeup: int) -> None:
    """Serve orders until the orchestrator closes its end of the pipe."""
    os.set_blocking(0, False)
    buffer = b""
    while True:
        select.select([0, wakeup, *pool.lines()], [], [])
        with contextlib.suppress(BlockingIOError):
            os.read(wakeup, 4096)
        for job, code in pool.ended():
            _report({"id": job, "exit": code})
        try:
            chunk = os.read(0, 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            _obey(json.loads(line), pool)


def _sweep() -> None:
    """End what an earlier host of this orchestrator left behind when it was killed."""
    if (mine := os.environ.get(OWNER)) == identity():
        tree.kill_tree(left_processes(), grace_s=0.0)  # of other hosts: this one is its own owner
    elif mine:
        tree.kill_tree(tree.tagged_processes(OWNER, mine), grace_s=0.0)
    sweep_leftovers()


def _obey(order: dict[str, Any], pool: WorkerPool) -> None:
    if "stop" in order:
        pool.stop(order["stop"])
        return
    if "placed" in order:
        os.environ[PLACED] = json.dumps(json.loads(os.environ.get(PLACED, "{}")) | order["placed"])
        return
    pid = pool.begin(order, lambda: warm_up_for(Path(order["folder"]) / "trial.json"))
    _report({"id": order["id"], "pid": pid, "start": tree.start_time(pid)})


def _end_all(pool: WorkerPool) -> None:
    """End all workers. Closing its line ends an idle worker; a signal alone could miss it: while a worker seals and
    reports, it ignores SIGTERM, and would then wait for orders that never come."""
    pool.hang_up()
    tree.kill_descendants(grace_s=_GRACE_S)
    sweep_leftovers()


def _report(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")
