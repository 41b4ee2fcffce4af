"""Control runs from outside: submit jobs that outlive this process, check on them later, and stop any run."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from benchhouse.catalog.entries import plug
from benchhouse.evidence.folder import read_meta, sealed_outcome
from benchhouse.evidence.verify import manifest_digest
from benchhouse.evidence.writing import write_text
from benchhouse.processes.owner_lock import interrupt
from benchhouse.runs.cleanup import clean_up
from benchhouse.runs.endings import sealed_end
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.records import open_executor, resume_run
from benchhouse.runs.service_control import attached_folders, settle
from benchhouse.schema.layout import RunFolder, WorkspaceFolder
from benchhouse.schema.protocols import Assignment, Carrier, Executor, JobState
from benchhouse.schema.service import ServiceFolder
from benchhouse.sites import places


@dataclass
class Queue:
    """The jobs of a run in a batch system, and the trials that ended since the ledger was last written."""

    jobs: list[str] = field(default_factory=list)
    pending: int = 0
    running: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # number of waiting trials by reason
    under_way: dict[str, str] = field(default_factory=dict)  # trial -> phase: pending, running
    sealed: dict[str, str] = field(default_factory=dict)  # trial -> outcome
    unsealed: dict[str, JobState] = field(default_factory=dict)  # trials whose jobs ended without evidence

    @property
    def to_collect(self) -> bool:
        return bool(self.sealed or self.unsealed)


@dataclass(frozen=True)
class Stopped:
    """The result of stopping a run."""

    run_id: str
    stopped_pid: int | None
    stopped_job: str
    swept_processes: int
    cancelled_trials: int
    said: list[str] = field(default_factory=list)
    """Messages of its executor: sealed trials that had not been fetched yet were fetched."""


def queue(workspace: WorkspaceFolder, run_id: str) -> Queue:
    """Return the state of a run's jobs, with one query to the batch system; nothing is written."""
    ledger, queue = Ledger(workspace.run(run_id)), Queue()
    if not ledger.goes_on():
        return queue
    executor = _executor(workspace, ledger)
    ended = _ended(ledger)
    trials = [trial for trial, attempt in executor.adopt().items() if (trial, attempt) not in ended]
    for trial, state in executor.poll(trials, 0.0).items():
        if state.phase == "done":
            if outcome := sealed_outcome(workspace.trial(ledger.record.scenario, trial)):
                queue.sealed[trial] = outcome
            else:
                queue.unsealed[trial] = state
            continue
        queue.under_way[trial] = state.phase
        if state.phase == "pending":
            queue.pending += 1
            queue.reasons[state.reason] = queue.reasons.get(state.reason, 0) + 1
        else:
            queue.running += 1
        if (job := state.detail.partition("_")[0]) and job not in queue.jobs:
            queue.jobs.append(job)
    return queue


def _cancel(workspace: WorkspaceFolder, ledger: Ledger, say: Callable[[str], None]) -> int:
    """Cancel all jobs of a run and return the number of trials that were under way. Only its owner may call this."""
    if not ledger.goes_on():
        return 0
    executor = _executor(workspace, ledger, say)
    attempts, known = executor.adopt(), _ended(ledger)
    states = executor.poll([trial for trial, attempt in attempts.items() if (trial, attempt) not in known], 0.0)
    trials = [trial for trial, state in states.items() if state.phase != "done"]
    executor.cancel(trials)
    for trial, state in states.items():  # recorded, so that resuming makes a new attempt and does not wait for this one
        folder = workspace.trial(ledger.record.scenario, trial)
        if outcome := sealed_outcome(folder):
            ledger.tell("ended", **sealed_end(trial, read_meta(folder), outcome, manifest_digest(folder)))
            continue
        ended = (state.outcome or "lost", state.reason) if state.phase == "done" else ("cancelled", "bench stop")
        ledger.tell("ended", trial_id=trial, attempt=attempts[trial], outcome=ended[0], reason=ended[1][:500])
    executor.end_services()
    settle([ServiceFolder(path) for path in attached_folders(ledger)], "its job was ended", "stopped")
    return len(trials)


def _ended(ledger: Ledger) -> set[tuple[str | None, int | None]]:
    """Return the attempts of trials whose end is recorded."""
    return {(event.trial_id, event.attempt) for event in ledger.events() if event.event == "ended"}


def _executor(workspace: WorkspaceFolder, ledger: Ledger, say: Callable[[str], None] = lambda text: None) -> Executor:
    """Return the executor, made from files alone: the scenario may need packages that are not installed here."""
    assignment = Assignment(site=places.site(workspace, ledger.record.site), run=ledger.folder, say=say)
    executor: Executor = plug("executors", ledger.record.executor)(assignment)
    return executor


def carrier(prepared: PreparedRun, run: RunFolder) -> Carrier | None:
    """Return the cluster that takes this run as a whole; None if a process on this machine runs it."""
    return getattr(open_executor(prepared, run, check=False), "carrier", None)


def carry(workspace: WorkspaceFolder, ledger: Ledger, cluster: Carrier) -> str:
    """Submit the run as a whole and return its job's id. The nodes must see this workspace and this Python."""
    earlier = sum(event.event == "submitted" for event in ledger.events())
    job = cluster.carry(*handover(workspace, ledger.folder, ledger.record.site, earlier))
    write_text(ledger.folder.carried, job)
    ledger.tell("submitted", reason=f"job {job}")
    return job


def handover(workspace: WorkspaceFolder, run: RunFolder, site: str | None, earlier: int = 0) -> tuple[str, list[str]]:
    """Return the name and command of the job that takes a whole run, after `earlier` previous ones."""
    root = str(workspace.root.absolute())
    command = [sys.executable, "-m", "benchhouse", "-C", root, "run", "--resume", run.run_id]
    return f"{run.job_name}{earlier + 1}", [*command, "--site", site] if site else command


def carried(workspace: WorkspaceFolder, ledger: Ledger) -> tuple[Carrier, str] | None:
    """Return the cluster and job of a run that was submitted as a whole; None if it is known to have ended."""
    if not ledger.folder.carried.is_file():
        return None
    cluster = carrier(resume_run(workspace, ledger.folder.run_id)[1], ledger.folder)
    job = ledger.folder.carried.read_text(encoding="utf-8").strip()
    return (cluster, job) if cluster and cluster.goes_on(job) else None


def stop(workspace: WorkspaceFolder, run_id: str, wait_s: float = 90.0) -> Stopped:
    """End a run's orchestrator, its jobs, and everything they started, and clean up after a killed orchestrator."""
    ledger = Ledger(workspace.run(run_id))
    record = ledger.record
    cluster, job = carried(workspace, ledger) or (None, "")
    if cluster:  # the pid of a process on another machine belongs to a different process here
        cluster.stop(job)
        ledger.tell("stopped", reason=f"job {job} was ended")
    said: list[str] = []
    stopped = interrupt(ledger.owner, f"run {run_id}", wait_s)
    ledger.own()
    try:
        cancelled = _cancel(workspace, ledger, said.append)
        _executor(workspace, ledger, said.append).sweep()
        swept = clean_up(workspace, ledger)
        kept = [ServiceFolder(path) for path in attached_folders(ledger)]
        settle([folder for folder in kept if folder.job.exists()], "its job was ended", "stopped")
        if cancelled:
            ledger.tell("stopped", reason=f"{cancelled} trials were under way")
    finally:
        ledger.release()
    return Stopped(record.run_id, stopped, job, swept, cancelled, said)
