"""Runs whose jobs outlive us: hand them over, look again later, from another process or login node, and end them."""

from dataclasses import dataclass, field

from benchhouse.catalog.entries import plug
from benchhouse.evidence.folder import sealed_outcome
from benchhouse.runs.keepers import settle
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Prepared
from benchhouse.runs.services import folders
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Assignment, Executor
from benchhouse.schema.service import ServiceFolder
from benchhouse.sites import places


@dataclass
class Queue:
    """What a batch system has of a run, and what was sealed since somebody last wrote it down."""

    jobs: list[str] = field(default_factory=list)
    pending: int = 0
    running: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # why trials wait
    sealed: dict[str, str] = field(default_factory=dict)  # trial and outcome


def outlives(prepared: Prepared) -> bool:
    """Whether the scenario's jobs go on without us."""
    return bool(plug("executors", prepared.plan.scenario.executor).outlives)


def queue(workspace: WorkspaceFolder, run_id: str) -> Queue:
    """How the jobs of a run stand, with one question to the batch system; nothing is written."""
    ledger = Ledger(workspace.run(run_id))
    found = Queue()
    if not ledger.goes_on():
        return found
    executor = _executor(workspace, ledger)
    ended = {(event.trial_id, event.attempt) for event in ledger.events() if event.event == "ended"}
    trials = [trial for trial, attempt in executor.adopt().items() if (trial, attempt) not in ended]
    for trial, state in executor.poll(trials, 0.0).items():
        if state.phase == "done":
            if outcome := sealed_outcome(workspace.trial(ledger.record.scenario, trial)):
                found.sealed[trial] = outcome
            continue
        if state.phase == "pending":
            found.pending += 1
            found.reasons[state.reason] = found.reasons.get(state.reason, 0) + 1
        else:
            found.running += 1
        if (job := state.detail.partition("_")[0]) and job not in found.jobs:
            found.jobs.append(job)
    return found


def cancel(workspace: WorkspaceFolder, ledger: Ledger) -> int:
    """End all jobs of a run; returns how many trials were under way. Call it as the run's owner."""
    if not ledger.goes_on():
        return 0
    executor = _executor(workspace, ledger)
    attempts = executor.adopt()
    under_way = [trial for trial, state in executor.poll(list(attempts), 0.0).items() if state.phase != "done"]
    executor.cancel(under_way)
    for trial in under_way:  # written down, so that resuming makes a new attempt and does not wait for this one
        if sealed_outcome(workspace.trial(ledger.record.scenario, trial)) is None:
            ledger.tell("ended", trial_id=trial, attempt=attempts[trial], outcome="cancelled", reason="bench stop")
    executor.end_services()
    settle([ServiceFolder(path) for path in folders(ledger)], "its job was ended", "stopped")
    return len(under_way)


def _executor(workspace: WorkspaceFolder, ledger: Ledger) -> Executor:
    """As files alone tell: without the scenario, which may need packages that are not here."""
    record = ledger.record
    assignment = Assignment(site=places.site(workspace, record.site), run=ledger.folder)
    executor: Executor = plug("executors", record.executor)(assignment)
    return executor
