"""Follow runs that are under way or over: find, status, stop, collect, and what went wrong. All from files alone."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchhouse.api import run_services
from benchhouse.api.sweeping import clean_up
from benchhouse.evidence.folder import read_meta, read_spec
from benchhouse.runs.ledger import Event, Ledger, RunRecord
from benchhouse.runs.ledger import list_runs as list_runs
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.schema.lists import shortened
from benchhouse.schema.problems import did_you_mean
from benchhouse.schema.trial import may_be_tried_again

if TYPE_CHECKING:
    from benchhouse.api.batch import Queue

_CLUSTERS = ("ray", "dask", "spark")  # that may go away under a run, which is then finished elsewhere
_FIGURE = re.compile(r"\d+([.,]\d+)*")


def find_run(workspace: Workspace, token: str) -> str:
    """A run id from `@last`, `@last-N` or `@last~N`, a unique prefix, or a scenario's name (its last run)."""
    runs = list_runs(workspace)
    if not runs:
        raise BenchError("there is no run in this workspace yet", "start one: bench run SCENARIO.yaml")
    if token.startswith("@last"):
        back = token.removeprefix("@last").replace("~", "-", 1).removeprefix("-") or "0"
        if not back.isdigit() or int(back) >= len(runs):
            raise BenchError(f"there is no run {token}: this workspace has {len(runs)}", "see: bench status")
        return runs[-1 - int(back)]
    matches = [run for run in runs if run.startswith(token)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BenchError(f"'{token}' could be {shortened(matches)}", "give more of the id")
    named = [run for run in runs if Ledger(workspace.run(run)).record.scenario == token]
    if named:
        return named[-1]
    scenarios = {Ledger(workspace.run(run)).record.scenario for run in runs}
    guess = did_you_mean(token, [*scenarios, *runs])
    raise BenchError(
        f"no run '{token}'", f"did you mean '{guess}'? see: bench status" if guess else "see: bench status"
    )


def trial_folders(workspace: Workspace, run_id: str, unread: list[str] | None = None) -> list[Path]:
    """The sealed folders of a run, by its ledger; `unread` is given the lines of that which can't be read."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    ended = (event.trial_id for event in ledger.events(unread) if event.event == "ended")
    names = dict.fromkeys(name for name in ended if name)
    folders = [workspace.trial(scenario, name) for name in names]
    return [folder.path for folder in folders if folder.sealed]


def collect(workspace: Workspace, run_id: str) -> dict[str, Any]:
    """Put a run's sealed trials into the warehouse; where its jobs go on without us, first look what became of them."""
    from benchhouse.api import batch
    from benchhouse.warehouse.ingest import collect as ingest

    under_way = batch.turn(workspace, run_id) or 0
    unread: list[str] = []
    try:
        collected = ingest(workspace, run_id, trial_folders(workspace, run_id, unread))
    except OSError as error:
        message = f"the trials are sealed, but could not be collected: {unwritable(workspace.warehouse, error).message}"
        raise BenchError(message, f"make room, then: bench collect {run_id}", Exit.TRIAL_FAILED) from error
    return {
        "run_id": run_id,
        "trials": collected.trials,
        "rows": collected.rows,
        "skipped": list(collected.skipped),
        "under_way": under_way,
        "unread_events": len(unread),
    }


def collect_missing(workspace: Workspace, run_id: str) -> list[str]:
    """Collect a run unless the tables hold all of its sealed trials already; what could not be, line by line."""
    from benchhouse.api import batch
    from benchhouse.warehouse.queries import is_collected
    from benchhouse.warehouse.query import Warehouse

    batch.turn(workspace, run_id)
    with Warehouse.open(workspace) as warehouse:
        if is_collected(warehouse, run_id, trial_folders(workspace, run_id)):
            return []
    return list(collect(workspace, run_id)["skipped"])


def status(workspace: Workspace, run_id: str) -> dict[str, Any]:
    """State of one run, from its files; where jobs go on without us, the batch system is asked once."""
    from benchhouse.api import batch

    ledger = Ledger(workspace.run(run_id))
    unread: list[str] = []
    record, events = ledger.record, list(ledger.events(unread))
    owner = ledger.owner()
    final: dict[str, Event] = {}
    for event in events:
        if event.event == "ended" and event.trial_id:
            final[event.trial_id] = event
        elif event.event == "retry" and event.trial_id:
            final.pop(event.trial_id, None)
    outcomes: dict[str, int] = {}
    for event in final.values():
        outcomes[event.outcome or "?"] = outcomes.get(event.outcome or "?", 0) + 1
    finished = any(event.event == "finished" for event in events[-2:])
    waiting = batch.queue(workspace, run_id) if owner is None else batch.Queue()
    if owner is None and (job := _handed_over(workspace, ledger, events)):
        waiting = batch.Queue(jobs=[job], pending=record.trials - len(final))
    for outcome in waiting.sealed.values():
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    goes_on = bool(waiting.pending or waiting.running)
    running = _running(workspace, record.scenario, run_id) if owner is not None or goes_on else []
    stopped_by = events[-1].event if events and events[-1].event in ("budget", "service") else ""
    durations = [event.duration_s for event in final.values() if event.duration_s]
    done = len(final) + len(waiting.sealed)
    gone = _broke_off(events) and record.executor in _CLUSTERS
    left = record.trials - done
    unsuccessful = [
        {"trial_id": name, "outcome": event.outcome, "code": event.code, "reason": event.reason}
        for name, event in final.items()
        if event.outcome != "succeeded"
    ]
    return {
        "run_id": run_id,
        "scenario": record.scenario,
        "experiment": f"{record.experiment.name} {record.experiment.version}",
        "executor": record.executor,
        "state": _state(owner, finished, waiting, left),
        "owner_pid": owner,
        "created": record.created,
        "trials": record.trials,
        "done": done,
        "outcomes": outcomes,
        "retries": sum(event.event == "retry" for event in events),
        "unread_events": len(unread),
        "running": running,
        "queue": batch.described(waiting) if goes_on or waiting.sealed else None,
        "estimated_left_s": sum(durations) / len(durations) * left if durations and left and not finished else None,
        "failures": [item for item in unsuccessful if item["outcome"] != "invalid"],
        "invalid": [item for item in unsuccessful if item["outcome"] == "invalid"],
        "stopped": events[-1].reason if stopped_by or _broke_off(events) else "",
        "stopped_by": stopped_by,
        "services": run_services.services(workspace, ledger, running),
        "next": _next_command(record, owner, finished, stopped_by, unsuccessful, waiting, lost_cluster=gone),
    }


def _handed_over(workspace: Workspace, ledger: Ledger, events: Sequence[Event]) -> str:
    """The job that a cluster has taken and not begun; nothing where it has, or can't be asked."""
    from benchhouse.api import carrying

    if not events or events[-1].event != "submitted":
        return ""
    try:
        found = carrying.under_way(workspace, ledger)
    except BenchError:
        return ""
    return found[1] if found else ""


def _broke_off(events: Sequence[Event]) -> bool:
    """Whether the run ended by something that was not asked for, such as a cluster that went away."""
    return bool(events) and events[-1].event == "interrupted" and events[-1].reason != "interrupted"


def _state(owner: int | None, finished: bool, waiting: "Queue", left: int) -> str:
    if owner is not None or waiting.running:
        return "running"
    if waiting.pending:
        return "waiting"
    if waiting.sealed and not left:
        return "to be collected"
    return "finished" if finished else "interrupted"


def _next_command(
    record: RunRecord,
    owner: int | None,
    finished: bool,
    stopped_by: str,
    unsuccessful: list[dict[str, Any]],
    waiting: "Queue",
    lost_cluster: bool = False,
) -> str:
    run_id = record.run_id
    if owner is not None or waiting.pending or waiting.running:
        return f"bench status {run_id} --watch"
    if waiting.sealed:
        return f"bench collect {run_id}"
    if not finished and stopped_by != "service":
        return f"bench run --resume {run_id}" + (" --executor local" if lost_cluster else "")
    if stopped_by == "service" or any(may_be_tried_again(item["outcome"], item["code"]) for item in unsuccessful):
        return f"bench run --resume {run_id} --rerun-failed"
    # What can't be done as it is asked for fails again.
    return f"mend the scenario, then:  bench run {record.scenario_file}" if unsuccessful else f"bench report {run_id}"


def _running(workspace: Workspace, scenario: str, run_id: str) -> list[str]:
    """Trials of this run that a worker has begun: it opens their logs."""
    folder = workspace.results / scenario / ".partial"
    begun = [TrialFolder(path) for path in sorted(folder.iterdir())] if folder.is_dir() else []
    found = []
    for trial in begun:
        with contextlib.suppress(OSError, ValueError):
            if trial.logs.is_dir() and read_spec(trial).run_id == run_id:
                found.append(trial.path.name.rpartition(".")[0])
    return found


def stop(workspace: Workspace, run_id: str, wait_s: float = 30.0) -> dict[str, Any]:
    """End a run's orchestrator, its jobs and everything they started; what a killed one left behind is swept."""
    from benchhouse.api import batch, carrying

    ledger = Ledger(workspace.run(run_id))
    record = ledger.record
    job = ""
    if carried := carrying.under_way(workspace, ledger):  # on another machine its process has another's number here
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
    return {
        "run_id": record.run_id,
        "stopped_pid": stopped,
        "stopped_job": job,
        "swept_processes": swept,
        "cancelled_trials": cancelled,
    }


def failures(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    """The failed trials of a run, with what a person needs to go on."""
    return _told(workspace, run_id, status(workspace, run_id)["failures"])


def invalid(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    """The trials of a run whose numbers are refused, with the reason, in the form of `failures`."""
    return _told(workspace, run_id, status(workspace, run_id)["invalid"])


def _told(workspace: Workspace, run_id: str, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    from benchhouse.warehouse.labels import point_label

    found = []
    for item in items:
        folder = workspace.trial(Ledger(workspace.run(run_id)).record.scenario, item["trial_id"])
        if folder.sealed:
            meta = read_meta(folder)
            failure = meta.failure
            item = item | {
                "point": point_label(read_spec(folder)),
                "code": failure.code if failure else "",
                "message": failure.message if failure else "",
                "traceback": failure.traceback if failure else "",
                "log_tail": failure.log_tail if failure else "",
            }
        found.append(item | {"folder": str(folder.path), "rerun": rerun_line(folder)})
    return found


def warnings(workspace: Workspace, run_id: str) -> list[tuple[str, str, int]]:
    """Named doubts about a run's numbers: code, what it says, and how many trials have it; the most frequent first.

    Texts that differ in their figures alone are one; the first stands for all.
    """
    from benchhouse.warehouse.queries import trials
    from benchhouse.warehouse.query import Warehouse

    found: dict[tuple[str, str], tuple[str, int]] = {}
    with Warehouse.open(workspace) as warehouse:
        rows = [row for row in trials(warehouse, [run_id]).dicts() if row["outcome"] in ("succeeded", "invalid")]
    for row in sorted(rows, key=lambda row: (row["started"], row["trial_id"])):
        told: dict[tuple[str, str], str] = {}  # once a trial, however often it says so
        for line in row["warnings"]:
            code, _, text = line.partition(": ")
            told.setdefault((code, _FIGURE.sub("#", text)), text)
        for key, text in told.items():
            first, number = found.get(key, (text, 0))
            found[key] = (first, number + 1)
    counted = [(code, text, number) for (code, _), (text, number) in found.items()]
    return sorted(counted, key=lambda item: -item[2])


def rerun_line(folder: TrialFolder) -> str:
    return f"bench run {folder.effective_config}"
