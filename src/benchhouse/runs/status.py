"""The status of a run, from its files alone: state, outcomes, failures, warnings, and the next command."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.processes.services import is_lost
from benchhouse.runs import batch
from benchhouse.runs.batch import Queue
from benchhouse.runs.ledger import Ledger, RunEvent, RunRecord
from benchhouse.runs.service_control import attached_folders, running_states
from benchhouse.runs.waits import SlotWait, waiting_slots
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.protocols import JobState
from benchhouse.schema.service import OVER, LiveServices
from benchhouse.schema.trial import may_be_tried_again
from benchhouse.warehouse.catalog import FILE_NAME
from benchhouse.warehouse.labels import point_label

State = Literal["running", "waiting", "to be collected", "finished", "interrupted", "pulled"]  # pulled: run elsewhere
_CLUSTERS = ("ray", "dask", "spark", "kubernetes")  # may go away under a run, which is then finished elsewhere
_HOSTS = "SELECT DISTINCT host FROM trial_fact WHERE run_id = $run AND host IS NOT NULL ORDER BY host"
_FIGURE = re.compile(r"\d+([.,]\d+)*")


@dataclass(frozen=True)
class UnsuccessfulTrial:
    """A trial that failed or whose numbers are invalid, with the details that a person needs to act on it."""

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
    """The command that runs only this trial again."""


@dataclass(frozen=True)
class QueueState:
    """The jobs and trials of a run in a batch system."""

    jobs: list[str]
    pending: int
    running: int
    reasons: Mapping[str, int]
    """Number of waiting trials by the reason why they wait."""
    sealed: int
    """Number of sealed trials to be collected; they are counted in `outcomes`."""
    unsealed: Mapping[str, int] = field(default_factory=dict)
    """Trials to be collected that left no evidence (cancelled, node lost), by outcome; lost ones are tried again."""


@dataclass(frozen=True)
class RunService:
    """A server of a run. `trial_id` names the trial that started it; None if it is attached to the run."""

    name: str
    recipe: str
    phase: str
    message: str
    since: str
    trial_id: str | None
    endpoints: list[str]
    pids: list[int]


@dataclass(frozen=True)
class RunStatus:
    """The state of one run."""

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
    states: Mapping[str, int]
    """Each planned trial once: by outcome, or running, waiting, not begun, not needed (repetitions until sure)."""
    retries: int
    unread_events: int
    running: list[str]
    running_points: list[str]
    """The points of the running trials."""
    queue: QueueState | None
    estimated_left_s: float | None
    failures: list[UnsuccessfulTrial] = field(default_factory=list)
    invalid: list[UnsuccessfulTrial] = field(default_factory=list)
    stopped: str = ""
    """Why the run ended before all its trials did; empty if it did not."""
    stopped_by: str = ""
    """budget or service if one of these ended the run, otherwise empty."""
    services: list[RunService] = field(default_factory=list)
    waits: list[SlotWait] = field(default_factory=list)
    """Slots that a cluster has not given the run yet, the longest wait first."""
    next: str = ""
    """The command that a person would usually run next."""
    ended: str = ""
    """When the run ended or was interrupted, UTC; empty while it is under way."""


@dataclass(frozen=True)
class RunWarning:
    """A named doubt about numbers of a run. Texts that differ only in their numbers count as one."""

    code: str
    text: str
    trials: int


@dataclass(frozen=True)
class RunOverview:
    """The contents of `bench show RUN` in addition to the table of points."""

    run_id: str
    scenario: str
    scenario_file: str
    experiment: str
    version: str
    distribution: str
    state: str
    created: str
    executor: str
    runtime: str
    site: str | None
    submitted_from: str
    hosts: tuple[str, ...]
    """Hosts of the trials that have been collected."""
    points: int
    trials: int
    done: int
    outcomes: tuple[tuple[str, int], ...]
    plan_digest: str
    next_commands: tuple[str, ...]
    schedule: str = ""
    """The schedule that started the run; empty if none did."""
    due: str = ""
    """When the slot of the schedule was due, UTC."""
    cadence: str = ""


def status(workspace: WorkspaceFolder, run_id: str) -> RunStatus:
    """Return the state of one run, from its files. For jobs that outlive this process, query the batch system once."""
    ledger = Ledger(workspace.run(run_id))
    unread: list[str] = []
    owner = ledger.owner()  # read before the events, so that what the owner writes in between is not missed
    record, events = ledger.record, list(ledger.events(unread))
    queue = _queue(workspace, ledger, events) if owner is None else Queue()
    points = _running(workspace, record.scenario, run_id) if owner is not None or queue.running else {}
    # A lost node leaves the folder of its trial.
    running = [name for name in points if owner is not None or queue.under_way.get(name) == "running"]
    newer = {*queue.under_way, *queue.sealed, *queue.unsealed, *running}  # newer than the ledger's events
    final = {name: event for name, event in _last_of_each(events).items() if name not in newer}
    finished = any(event.event == "finished" for event in events[-2:])
    stopped_by = events[-1].event if events and events[-1].event in ("budget", "service") else ""
    durations = [event.duration_s for event in final.values() if event.duration_s]
    lost = [UnsuccessfulTrial(name, _outcome(state), "", state.reason) for name, state in queue.unsealed.items()]
    unsuccessful = [
        UnsuccessfulTrial(name, event.outcome or "?", event.code, event.reason)
        for name, event in final.items()
        if event.outcome != "succeeded"
    ] + lost
    ended = [event.outcome or "?" for event in final.values()]
    outcomes = Counter([*ended, *queue.sealed.values(), *(trial.outcome for trial in lost)])
    done = outcomes.total()
    left = record.trials - done
    running_count = queue.running if owner is None else len(running)
    state = _state(owner, finished, queue)
    return RunStatus(
        run_id=run_id,
        scenario=record.scenario,
        experiment=f"{record.experiment.name} {record.experiment.version}",
        executor=record.executor,
        state=state,
        owner_pid=owner,
        created=record.created,
        trials=record.trials,
        done=done,
        outcomes=dict(outcomes),
        states=_states(outcomes, running_count, queue.pending, left, finished),
        retries=sum(event.event == "retry" for event in events),
        unread_events=len(unread),
        running=running,
        running_points=list(dict.fromkeys(points[name] for name in running)),
        queue=_queue_state(queue) if queue.pending or queue.running or queue.to_collect else None,
        estimated_left_s=sum(durations) / len(durations) * left if durations and left and not finished else None,
        failures=[trial for trial in unsuccessful if trial.outcome != "invalid"],
        invalid=[trial for trial in unsuccessful if trial.outcome == "invalid"],
        stopped=events[-1].reason if stopped_by or _broke_off(events) else "",
        stopped_by=stopped_by,
        services=[*_attached(ledger), *_of_trials(workspace, record.scenario, running)],
        waits=waiting_slots(ledger.folder) if owner is not None else [],
        next=_next_command(record, events, unsuccessful, queue, owned=owner is not None),
        ended=events[-1].time if events and state in ("finished", "interrupted") else "",
    )


def _queue(workspace: WorkspaceFolder, ledger: Ledger, events: Sequence[RunEvent]) -> Queue:
    """Return the queue of a run that no process owns."""
    if job := _handed_over(workspace, ledger, events):
        return Queue([job], ledger.record.trials - len(_last_of_each(events)))
    return batch.queue(workspace, ledger.folder.run_id)


def _outcome(state: JobState) -> str:
    """Return the outcome of a job that ended without evidence."""
    return state.outcome or "lost"


def _queue_state(queue: Queue) -> QueueState:
    unsealed = Counter(map(_outcome, queue.unsealed.values()))
    return QueueState(queue.jobs, queue.pending, queue.running, queue.reasons, len(queue.sealed), dict(unsealed))


def _states(outcomes: Mapping[str, int], running: int, waiting: int, left: int, finished: bool) -> dict[str, int]:
    rest = {"running": running, "waiting": waiting, "not needed" if finished else "not begun": left - running - waiting}
    return {**outcomes, **{state: count for state, count in rest.items() if count}}


def _last_of_each(events: Sequence[RunEvent]) -> dict[str, RunEvent]:
    """Return the last event of each trial that ended and is not tried again."""
    final: dict[str, RunEvent] = {}
    for event in events:
        if event.event == "ended" and event.trial_id:
            final[event.trial_id] = event
        elif event.event == "retry" and event.trial_id:
            final.pop(event.trial_id, None)
        elif event.event in ("resumed", "submitted"):  # every trial that left no evidence is tried again
            final = {name: ended for name, ended in final.items() if ended.manifest}
    return final


def _handed_over(workspace: WorkspaceFolder, ledger: Ledger, events: Sequence[RunEvent]) -> str:
    """Return the job that a cluster has accepted but not started; empty if there is none or it can't be queried."""
    if not events or events[-1].event != "submitted":
        return ""
    try:
        return (batch.carried(workspace, ledger) or ("", ""))[1]
    except BenchError:
        return ""


def _broke_off(events: Sequence[RunEvent]) -> bool:
    """Return whether the run was ended by something other than a person, such as a cluster that went away."""
    return bool(events) and events[-1].event == "interrupted" and events[-1].reason != "interrupted"


def _state(owner: int | None, finished: bool, queue: Queue) -> State:
    if owner is not None or queue.running:
        return "running"
    if queue.pending:
        return "waiting"
    if queue.to_collect:
        return "to be collected"
    return "finished" if finished else "interrupted"


def _next_command(
    record: RunRecord, events: Sequence[RunEvent], unsuccessful: list[UnsuccessfulTrial], queue: Queue, *, owned: bool
) -> str:
    run_id = record.run_id
    if owned or queue.pending or queue.running:
        return f"bench status {run_id} --watch"
    if queue.to_collect:
        return f"bench collect {run_id}"
    finished = any(event.event == "finished" for event in events[-2:])
    by_service = bool(events) and events[-1].event == "service"
    if not finished and not by_service:
        lost_cluster = _broke_off(events) and record.executor in _CLUSTERS
        return f"bench run --resume {run_id}" + (" --executor local" if lost_cluster else "")
    if by_service or any(may_be_tried_again(trial.outcome, trial.code) for trial in unsuccessful):
        return f"bench run --resume {run_id} --rerun-failed"
    # An option that is not possible would fail again.
    return f"mend the scenario, then:  bench run {record.scenario_file}" if unsuccessful else f"bench report {run_id}"


def _running(workspace: WorkspaceFolder, scenario: str, run_id: str) -> dict[str, str]:
    """Return the trials that have a partial folder, and the point of each."""
    trials = {}
    for trial in map(TrialFolder, sorted((workspace.results / scenario / ".partial").glob("*"))):
        with contextlib.suppress(OSError, ValueError):
            if trial.logs.is_dir() and (spec := read_spec(trial)).run_id == run_id:
                trials[trial.path.name.rpartition(".")[0]] = point_label(spec)
    return trials


def _attached(ledger: Ledger) -> list[RunService]:
    services = []
    for folder, state in running_states(attached_folders(ledger)):
        phase = "lost" if is_lost(state) else state.phase
        replicas = [] if state.phase in OVER else state.replicas
        places = [item.endpoint for item in replicas], [item.pid for item in replicas]
        name = folder.path.name
        services.append(RunService(name, state.recipe, phase, state.message, state.since, None, *places))
    return services


def _of_trials(workspace: WorkspaceFolder, scenario: str, trials: Iterable[str]) -> Iterator[RunService]:
    """Yield the servers that these trials started for themselves."""
    for trial_id in trials:
        for partial in (workspace.results / scenario / ".partial").glob(f"{trial_id}.*"):
            with contextlib.suppress(OSError, ValueError):
                live = LiveServices.model_validate_json(TrialFolder(partial).services.read_bytes())
                for name, item in live.services.items():
                    yield RunService(name, "", "ready", "", "", trial_id, [item.endpoint], [item.pid])


def explained(workspace: WorkspaceFolder, run_id: str, trials: Iterable[UnsuccessfulTrial]) -> list[UnsuccessfulTrial]:
    """Return the same trials with messages, logs, and rerun commands; those that left no evidence come last."""
    if not workspace.run(run_id).record.is_file():  # pulled: the tables hold everything there is
        return list(trials)
    scenario = Ledger(workspace.run(run_id)).record.scenario
    detailed = []
    for trial in trials:
        folder = workspace.trial(scenario, trial.trial_id)
        if folder.sealed:
            trial = replace(trial, folder=str(folder.path), rerun=rerun_line(folder))
            trial = replace(trial, point=point_label(read_spec(folder)), code="")
            if failure := read_meta(folder).failure:
                trial = replace(
                    trial,
                    code=failure.code,
                    message=failure.message,
                    traceback=failure.traceback,
                    log_tail=failure.log_tail,
                )
        detailed.append(trial)
    return sorted(detailed, key=lambda trial: not trial.folder)


def warnings(workspace: WorkspaceFolder, run_id: str) -> list[RunWarning]:
    """Return the named doubts about a run's numbers, the most frequent first."""
    from benchhouse.warehouse.queries import trials
    from benchhouse.warehouse.query import Warehouse

    counts, first_texts = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    with Warehouse.open(workspace) as warehouse:
        rows = [row for row in trials(warehouse, [run_id]).dicts() if row["outcome"] in ("succeeded", "invalid")]
    for row in sorted(rows, key=lambda row: (row["started"], row["trial_id"])):
        texts: dict[tuple[str, str], str] = {}  # once per trial, however often it repeats
        for line in row["warnings"]:
            code, _, text = line.partition(": ")
            texts.setdefault((code, _FIGURE.sub("#", text)), text)
        counts.update(texts.keys())
        first_texts = texts | first_texts
    return [RunWarning(key[0], first_texts[key], count) for key, count in counts.most_common()]


def rerun_line(folder: TrialFolder) -> str:
    return f"bench run {folder.effective_config}"


def overview(workspace: WorkspaceFolder, run_id: str) -> RunOverview:
    """Return what ran, where, and its state."""
    record, state = Ledger(workspace.run(run_id)).record, status(workspace, run_id)
    code = record.experiment
    commands = (state.next, *(f"bench {verb} {run_id}" for verb in ("report", "logs", "verify")))
    return RunOverview(
        run_id=record.run_id,
        scenario=record.scenario,
        scenario_file=record.scenario_file,
        experiment=code.name,
        version=code.version,
        distribution=f"{code.distribution} {code.distribution_version}".strip(),
        state=state.state,
        created=record.created,
        executor=record.executor,
        runtime=record.runtime,
        site=record.site,
        submitted_from=record.host,
        hosts=_hosts(workspace, run_id),
        points=record.points,
        trials=record.trials,
        done=state.done,
        outcomes=tuple(state.outcomes.items()),
        plan_digest=record.plan_digest,
        next_commands=tuple(dict.fromkeys(commands)),
        **(record.scheduled.model_dump() if record.scheduled else {}),
    )


def _hosts(workspace: WorkspaceFolder, run_id: str) -> tuple[str, ...]:
    if not (workspace.warehouse / FILE_NAME).exists():
        return ()
    from benchhouse.warehouse.query import Warehouse, own

    with Warehouse.open(workspace) as warehouse:
        return tuple(row[0] for row in warehouse.query(own(_HOSTS), {"run": run_id}, runs=[run_id]).rows)
