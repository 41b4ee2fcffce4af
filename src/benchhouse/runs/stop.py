"""End a run: its orchestrator, its jobs, and everything they started."""

import os
import signal
import time
from dataclasses import dataclass

from benchhouse.runs import batch, cluster_jobs
from benchhouse.runs.cleanup import clean_up
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder


@dataclass(frozen=True)
class Stopped:
    """What was ended."""

    run_id: str
    stopped_pid: int | None
    stopped_job: str
    swept_processes: int
    cancelled_trials: int


def stop(workspace: WorkspaceFolder, run_id: str, wait_s: float = 30.0) -> Stopped:
    """End a run's orchestrator, its jobs and everything they started; what a killed one left behind is swept."""
    ledger = Ledger(workspace.run(run_id))
    record = ledger.record
    job = ""
    if carried := cluster_jobs.under_way(workspace, ledger):  # on another machine its process has another's number here
        by, job = carried
        by.stop(job)
        ledger.tell("stopped", reason=f"job {job} was ended")
    deadline = time.monotonic() + wait_s
    stopped: int | None = None
    while (owner := ledger.owner()) is not None:
        if owner and owner != stopped:  # 0: it has only just begun, and will say who it is
            os.kill(owner, signal.SIGINT)
            stopped = owner
        if time.monotonic() > deadline:
            raise BenchError(f"process {owner} did not end within {wait_s:g} s", f"kill -9 {owner}, then stop again")
        time.sleep(0.05)
    ledger.own()
    try:
        cancelled = batch.cancel(workspace, ledger)
        swept = clean_up(workspace, ledger)
        if cancelled:
            ledger.tell("stopped", reason=f"{cancelled} trials were under way")
    finally:
        ledger.release()
    return Stopped(record.run_id, stopped, job, swept, cancelled)
