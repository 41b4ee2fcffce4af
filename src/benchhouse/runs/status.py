"""How a run stands, from its files alone: state, outcomes, failures, warnings, and the next command."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.runs import batch, cluster_jobs
from benchhouse.runs.batch import Queue
from benchhouse.runs.ledger import Event, Ledger, RunRecord
from benchhouse.runs.services import RunService, services_of
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.trial import may_be_tried_again
from benchhouse.warehouse.labels import point_label

State = Literal["running", "waiting", "to be collected", "finished", "interrupted"]
_CLUSTERS = ("ray", "dask", "spark")  # that may go away under a run, which is then finished elsewhere
_FIGURE = re.compile(r"\d+([.,]\d+)*")


@dataclass(frozen=True)
class UnsuccessfulTrial:
    """A trial that failed, or whose numbers are refused, with what a person needs to go on."""

    trial_id: str
    outcome: str
    code: str
    reason: str
    point: str = ""
    message: str = ""
    traceback: str = ""
    log_tail: str = ""
    folder: str = ""
    rerun: str = ""
    """The command that runs exactly this trial again."""


@dataclass(frozen=True)
class QueueState:
    """What a batch system has of a run."""

    jobs: list[str]
    pending: int
    running: int
    reasons: Mapping[str, int]
    """Why trials wait, and how many do for each reason."""
    sealed: int


@dataclass(frozen=True)
class RunStatus:
    """How one run stands."""

    run_id: str
    scenario: str
    experiment: str
    executor: str
    state: State
    owner_pid: int | None
    created: str
    trials: int
    done: int
    outcomes: Mapping[str, int]
    retries: int
    unread_events: int
    running: list[str]
    queue: QueueState | None
    estimated_left_s: float | None
    failures: list[UnsuccessfulTrial] = field(default_factory=list)
    invalid: list[UnsuccessfulTrial] = field(default_factory=list)
    stopped: str = ""
    """Why the run ended before all its trials did."""
    stopped_by: str = ""
    """budget or service, where one of these ended it."""
    services: list[RunService] = field(default_factory=list)
    next: str = ""
    """The command that a person would give next."""


@dataclass(frozen=True)
class Warning:
    """A named doubt about numbers of a run; texts that differ in their figures alone are one."""

    code: str
    text: str
    trials: int


def status(workspace: WorkspaceFolder, run_id: str) -> RunStatus:
    """State of one run, from its files; where jobs go on without us, the batch system is asked once."""
    ledger = Ledger(workspace.run(run_id))
    unread: list[str] = []
    record, events, owner = ledger.record, list(ledger.events(unread)), ledger.owner()
    final = _last_of_each(events)
    finished = any(event.event == "finished" for event in events[-2:])
    queue = batch.queue(workspace, run_id) if owner is None else Queue()
    if owner is None and (job := _handed_over(workspace, ledger, events)):
        queue = Queue(jobs=[job], pending=record.trials - len(final))
    goes_on = bool(queue.pending or queue.running)
    running = _running(workspace, record.scenario, run_id) if owner is not None or goes_on else []
    stopped_by = events[-1].event if events and events[-1].event in ("budget", "service") else ""
    durations = [event.duration_s for event in final.values() if event.duration_s]
    done = len(final) + len(queue.sealed)
    left = record.trials - done
    unsuccessful = [
        UnsuccessfulTrial(name, event.outcome or "?", event.code, event.reason)
        for name, event in final.items()
        if event.outcome != "succeeded"
    ]
    return RunStatus(
        run_id=run_id,
        scenario=record.scenario,
        experiment=f"{record.experiment.name} {record.experiment.version}",
        executor=record.executor,
        state=_state(owner, finished, queue, left),
        owner_pid=owner,
        created=record.created,
        trials=record.trials,
        done=done,
        outcomes=dict(Counter([*(event.outcome or "?" for event in final.values()), *queue.sealed.values()])),
        retries=sum(event.event == "retry" for event in events),
        unread_events=len(unread),
        running=running,
        queue=_queue_state(queue) if goes_on or queue.sealed else None,
        estimated_left_s=sum(durations) / len(durations) * left if durations and left and not finished else None,
        failures=[trial for trial in unsuccessful if trial.outcome != "invalid"],
        invalid=[trial for trial in unsuccessful if trial.outcome == "invalid"],
        stopped=events[-1].reason if stopped_by or _broke_off(events) else "",
        stopped_by=stopped_by,
        services=services_of(workspace, ledger, running),
        next=_next_command(record, events, unsuccessful, queue, owned=owner is not None),
    )


def _last_of_each(events: Sequence[Event]) -> dict[str, Event]:
    """How each trial ended at last; not those that are tried again."""
    final: dict[str, Event] = {}
    for event in events:
        if event.event == "ended" and event.trial_id:
            final[event.trial_id] = event
        elif event.event == "retry" and event.trial_id:
            final.pop(event.trial_id, None)
    return final


def _queue_state(queue: Queue) -> QueueState:
    return QueueState(queue.jobs, queue.pending, queue.running, queue.reasons, len(queue.sealed))


def _handed_over(workspace: WorkspaceFolder, ledger: Ledger, events: Sequence[Event]) -> str:
    """The job that a cluster has taken and not begun; nothing where it has, or can't be asked."""
    if not events or events[-1].event != "submitted":
        return ""
    try:
        carried = cluster_jobs.under_way(workspace, ledger)
    except BenchError:
        return ""
    return carried[1] if carried else ""


def _broke_off(events: Sequence[Event]) -> bool:
    """Whether the run ended by something that was not asked for, such as a cluster that went away."""
    return bool(events) and events[-1].event == "interrupted" and events[-1].reason != "interrupted"


def _state(owner: int | None, finished: bool, queue: Queue, left: int) -> State:
    if owner is not None or queue.running:
        return "running"
    if queue.pending:
        return "waiting"
    if queue.sealed and not left:
        return "to be collected"
    return "finished" if finished else "interrupted"


def _next_command(
    record: RunRecord, events: Sequence[Event], unsuccessful: list[UnsuccessfulTrial], queue: Queue, *, owned: bool
) -> str:
    run_id = record.run_id
    if owned or queue.pending or queue.running:
        return f"bench status {run_id} --watch"
    if queue.sealed:
        return f"bench collect {run_id}"
    finished = any(event.event == "finished" for event in events[-2:])
    by_service = bool(events) and events[-1].event == "service"
    if not finished and not by_service:
        lost_cluster = _broke_off(events) and record.executor in _CLUSTERS
        return f"bench run --resume {run_id}" + (" --executor local" if lost_cluster else "")
    if by_service or any(may_be_tried_again(trial.outcome, trial.code) for trial in unsuccessful):
        return f"bench run --resume {run_id} --rerun-failed"
    # What can't be done as it is asked for fails again.
    return f"mend the scenario, then:  bench run {record.scenario_file}" if unsuccessful else f"bench report {run_id}"


def _running(workspace: WorkspaceFolder, scenario: str, run_id: str) -> list[str]:
    """Trials of this run that a worker has begun: it opens their logs."""
    folder = workspace.results / scenario / ".partial"
    begun = [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    trials = []
    for trial in begun:
        with contextlib.suppress(OSError, ValueError):
            if trial.logs.is_dir() and read_spec(trial).run_id == run_id:
                trials.append(trial.path.name.rpartition(".")[0])
    return trials


def failures(workspace: WorkspaceFolder, run_id: str) -> list[UnsuccessfulTrial]:
    """The failed trials of a run, with what a person needs to go on."""
    return _explained(workspace, run_id, status(workspace, run_id).failures)


def invalid(workspace: WorkspaceFolder, run_id: str) -> list[UnsuccessfulTrial]:
    """The trials of a run whose numbers are refused, with the reason."""
    return _explained(workspace, run_id, status(workspace, run_id).invalid)


def _explained(workspace: WorkspaceFolder, run_id: str, trials: Iterable[UnsuccessfulTrial]) -> list[UnsuccessfulTrial]:
    """With what their sealed folders say."""
    scenario = Ledger(workspace.run(run_id)).record.scenario
    explained = []
    for trial in trials:
        folder = workspace.trial(scenario, trial.trial_id)
        failure = read_meta(folder).failure if folder.sealed else None
        trial = replace(trial, folder=str(folder.path), rerun=rerun_line(folder))
        if folder.sealed:
            trial = replace(trial, point=point_label(read_spec(folder)), code="")
        if failure:
            trial = replace(
                trial,
                code=failure.code,
                message=failure.message,
                traceback=failure.traceback,
                log_tail=failure.log_tail,
            )
        explained.append(trial)
    return explained


def warnings(workspace: WorkspaceFolder, run_id: str) -> list[Warning]:
    """Named doubts about a run's numbers, the most frequent first."""
    from benchhouse.warehouse.queries import trials
    from benchhouse.warehouse.query import Warehouse

    counts: dict[tuple[str, str], tuple[str, int]] = {}
    with Warehouse.open(workspace) as warehouse:
        rows = [row for row in trials(warehouse, [run_id]).dicts() if row["outcome"] in ("succeeded", "invalid")]
    for row in sorted(rows, key=lambda row: (row["started"], row["trial_id"])):
        texts: dict[tuple[str, str], str] = {}  # once a trial, however often it says so
        for line in row["warnings"]:
            code, _, text = line.partition(": ")
            texts.setdefault((code, _FIGURE.sub("#", text)), text)
        for key, text in texts.items():
            first, number = counts.get(key, (text, 0))
            counts[key] = (first, number + 1)
    doubts = [Warning(code, text, number) for (code, _), (text, number) in counts.items()]
    return sorted(doubts, key=lambda doubt: -doubt.trials)


def rerun_line(folder: TrialFolder) -> str:
    return f"bench run {folder.effective_config}"
