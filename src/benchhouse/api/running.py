"""Run, resume, follow and stop: a prepared scenario goes in, sealed and collected trials come out."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.api import places
from benchhouse.api.planning import Prepared, prepare_text
from benchhouse.catalog.entries import plug
from benchhouse.catalog.loading import code_digest
from benchhouse.evidence.folder import now, read_meta, read_spec, write_text
from benchhouse.plan import Plan
from benchhouse.runs.ledger import Event, Ledger, RunRecord, new_run_id
from benchhouse.runs.ledger import list_runs as list_runs
from benchhouse.runs.orchestrate import Orchestrator, Progress, leftovers
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.schema.problems import did_you_mean
from benchhouse.schema.protocols import Executor, Job
from benchhouse.schema.secrets import is_secret_key
from benchhouse.schema.trial import Instance, TrialSpec, trial_id
from benchhouse.schema.yamldump import dump_yaml

Say = Callable[[str], None]


@dataclass(frozen=True)
class RunSummary:
    """How a run ended."""

    run_id: str
    scenario: str
    outcomes: dict[str, int]
    seconds: float
    complete: bool
    stopped: str

    @property
    def exit_code(self) -> Exit:
        good = self.complete and set(self.outcomes) <= {"succeeded"}
        return Exit.GOOD if good else Exit.TRIAL_FAILED


def open_run(
    workspace: Workspace, prepared: Prepared, path: Path, fresh: bool, say: Say, *, finished_too: bool = False
) -> Ledger:
    """The unfinished run of the same plan and conditions, if there is one and `fresh` is not asked; else a new run.

    With `finished_too` (to run failed trials again) code that was mended meanwhile is no hindrance, but is told.
    """
    if prepared.plan.code is None:
        raise BenchError(prepared.notes[0], "install a package that offers it; see: bench list experiments")
    _executor(prepared).close()
    unfinished = None if fresh else _last_of_plan(workspace, prepared, finished_too)
    if unfinished:
        if (owner := unfinished.owner()) is not None:
            raise unfinished.busy(owner)
        changed = changed_conditions(unfinished, prepared)
        if changed and not finished_too:
            say(f"a new run: since {unfinished.folder.run_id} there is another {' and '.join(changed)}")
            return create_run(workspace, prepared, path)
        say(f"resuming run {unfinished.folder.run_id} (bench run --new starts afresh)")
        # What the plan does not cover, such as the budget, may have been edited.
        write_text(unfinished.folder.scenario, prepared.file.document.text)
        return unfinished
    return create_run(workspace, prepared, path)


def conditions(prepared: Prepared) -> dict[str, str]:
    """What a measurement depends on besides the plan: trials made under different ones don't belong into one mean."""
    scenario = prepared.plan.scenario
    return {
        "experiment code": code_digest(prepared.plan.experiment),
        "environment": digest(dict(scenario.environment)),
        "runtime": digest(scenario.runtime.model_dump()),
        "resources": digest(prepared.plan.resources.model_dump()),
    }


def changed_conditions(ledger: Ledger, prepared: Prepared) -> list[str]:
    before = ledger.record.conditions
    return [name for name, value in conditions(prepared).items() if before.get(name, value) != value]


def _executor(prepared: Prepared, parallel: int | None = None) -> Executor:
    """The scenario's executor; raises at once when it can't give what a trial asks for."""
    scenario = prepared.plan.scenario
    executor: Executor = plug("executors", scenario.executor)(parallel=parallel or scenario.parallel)
    try:
        executor.check(prepared.plan.resources)
    except BenchError:
        executor.close()
        raise
    return executor


def create_run(workspace: Workspace, prepared: Prepared, path: Path) -> Ledger:
    plan = prepared.plan
    record = RunRecord(
        run_id=new_run_id(),
        scenario=plan.scenario.scenario,
        scenario_file=str(path.absolute()),
        created=now(),
        plan_digest=plan.digest,
        points=plan.points,
        trials=plan.trial_count,
        experiment=plan.experiment,
        executor=plan.scenario.executor,
        runtime=plan.scenario.runtime.kind,
        host=os.uname().nodename,
        command=sys.argv,
        conditions=conditions(prepared),
    )
    benchmark_text = prepared.registered.document.text if prepared.registered else None
    return Ledger.create(workspace, record, prepared.file.document.text, benchmark_text)


def resume_run(workspace: Workspace, token: str) -> tuple[Ledger, Prepared]:
    """An earlier run and its plan, read from the ledger alone."""
    ledger = Ledger(workspace.run(find_run(workspace, token)))
    text = ledger.folder.scenario.read_text(encoding="utf-8")
    home = Path(ledger.record.scenario_file).parent
    prepared = prepare_text(workspace, text, str(ledger.folder.scenario), home)
    if prepared.plan.digest != ledger.record.plan_digest:
        raise BenchError(
            f"run {ledger.folder.run_id} was planned as {ledger.record.plan_digest[:12]}, "
            f"its scenario now plans as {prepared.plan.digest[:12]}",
            "the experiment's package or the environment has changed; start afresh: bench run --new",
        )
    for name in changed_conditions(ledger, prepared):
        prepared.notes.append(
            f"another {name} than when this run began: its numbers mix the two (bench run --new keeps them apart)"
        )
    return ledger, prepared


def _last_of_plan(workspace: Workspace, prepared: Prepared, finished_too: bool) -> Ledger | None:
    for run_id in reversed(list_runs(workspace)):
        ledger = Ledger(workspace.run(run_id))
        record = ledger.record
        if record.scenario == prepared.plan.scenario.scenario and record.plan_digest == prepared.plan.digest:
            finished = not finished_too and any(event.event == "finished" for event in ledger.events())
            return None if finished else ledger
    return None


def execute(
    workspace: Workspace,
    prepared: Prepared,
    ledger: Ledger,
    show: Callable[[Progress], None],
    *,
    parallel: int | None = None,
    rerun_failed: bool = False,
) -> RunSummary:
    """Run what is missing of a run, then collect it. The ledger and the folders are true at every moment."""
    plan = prepared.plan
    scenario = plan.scenario
    started = time.monotonic()
    ledger.own()
    executor = None
    try:
        clean_up(workspace, ledger)
        runtime = plug("runtimes", scenario.runtime.kind)()
        runtime.prepare(scenario.runtime, places.cache())
        python = runtime.python(scenario.runtime, places.cache())
        executor = _executor(prepared, parallel)
        frame = {
            "code_digest": code_digest(plan.experiment),
            "parallel": parallel or scenario.parallel,
            "plan_digest": plan.digest,
            "source": _git(prepared.home),
            "cache": str(places.cache()),
        }
        orchestrator = Orchestrator(
            workspace, plan, ledger, executor, python, frame, effective_config, show, rerun_failed=rerun_failed
        )
        ledger.tell("resumed" if any(ledger.events()) else "started")
        outcomes = orchestrator.run()
    finally:
        if executor is not None:
            executor.close()
        ledger.release()
    complete = sum(outcomes.values()) - outcomes.get("lost", 0) == plan.trial_count
    return RunSummary(
        ledger.folder.run_id, scenario.scenario, outcomes, time.monotonic() - started, complete, orchestrator.stopped
    )


def render(workspace: Workspace, prepared: Prepared, jobs: int = 3) -> str:
    """What would be started, exactly, for the first trials."""
    plan = prepared.plan
    run_id = "RUN"
    python = plug("runtimes", plan.scenario.runtime.kind)().python(plan.scenario.runtime, places.cache())
    rendered = []
    for planned in plan.trials():
        name = trial_id(run_id, planned.instance_digest, planned.repetition, planned.warmup)
        folder = workspace.partial(plan.scenario.scenario, name, 1).path
        label = ", ".join(f"{key}={value}" for key, value in _point(plan, planned.instance).items())
        kind = "warm-up" if planned.warmup else "repetition"
        label = f"{label or plan.scenario.scenario}, {kind} {planned.repetition}, seed {planned.seed}"
        rendered.append(Job(name, folder, python, plan.resources, folder, label))
        if len(rendered) == jobs:
            break
    executor = _executor(prepared)
    text = executor.render(rendered)
    executor.close()
    more = plan.trial_count - len(rendered)
    return f"{text}\n# ... and {more} more" if more else text


def _point(plan: Plan, instance: Instance) -> dict[str, Any]:
    """The values of the axes at one instance, as far as they are plain."""
    values = {f"target.{key}": value for key, value in instance.target.items()} | instance.parameters
    return {key: values[key] for key in plan.axes if not isinstance(values.get(key), dict | list | None)}


def effective_config(spec: TrialSpec) -> str:
    """The whole configuration of one trial, as a scenario that runs exactly this trial again."""
    config = {
        "schema_version": 1,
        "scenario": spec.scenario,
        "experiment": spec.experiment.name,
        "version": spec.experiment.version,
        "target": _escaped(spec.target),
        "workload": _escaped(spec.parameters),
        "repetitions": 1,
        "seed": spec.seed,
        "resources": spec.resources.model_dump(exclude_none=True),
        "limits": spec.limits.model_dump(exclude_none=True),
        "executor": spec.executor,
        "runtime": spec.runtime.model_dump(exclude_defaults=True) | {"kind": spec.runtime.kind},
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "artifacts": _escaped(spec.artifacts),
        "binds": _escaped(spec.binds),
        "environment": _escaped(spec.environment),
    }
    return dump_yaml({key: value for key, value in config.items() if value not in (None, {}, [])})


def _escaped(value: Any, key: str = "") -> Any:
    """A `$` that was plain stays plain when the file is read again; a secret stays a reference."""
    if isinstance(value, dict):
        return {name: _escaped(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item, key) for item in value]
    return value.replace("$", "$$") if isinstance(value, str) and not is_secret_key(key) else value


def find_run(workspace: Workspace, token: str) -> str:
    """A run id from `@last`, `@last-N`, a unique prefix, or a scenario's name (its last run)."""
    runs = list_runs(workspace)
    if not runs:
        raise BenchError("there is no run in this workspace yet", "start one: bench run SCENARIO.yaml")
    if token.startswith("@last"):
        back = token.removeprefix("@last").removeprefix("-") or "0"
        if not back.isdigit() or int(back) >= len(runs):
            raise BenchError(f"there is no run {token}: this workspace has {len(runs)}", "see: bench status")
        return runs[-1 - int(back)]
    matches = [run for run in runs if run.startswith(token)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise BenchError(f"'{token}' could be {', '.join(matches[:5])}", "give more of the id")
    named = [run for run in runs if Ledger(workspace.run(run)).record.scenario == token]
    if named:
        return named[-1]
    scenarios = {Ledger(workspace.run(run)).record.scenario for run in runs}
    guess = did_you_mean(token, [*scenarios, *runs])
    raise BenchError(
        f"no run '{token}'", f"did you mean '{guess}'? see: bench status" if guess else "see: bench status"
    )


def trial_folders(workspace: Workspace, run_id: str) -> list[Path]:
    """The sealed folders of a run, by its ledger."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    names = dict.fromkeys(event.trial_id for event in ledger.events() if event.event == "ended" and event.trial_id)
    folders = [workspace.trial(scenario, name) for name in names]
    return [folder.path for folder in folders if folder.sealed]


def collect(workspace: Workspace, run_id: str) -> dict[str, Any]:
    """Put a run's sealed trials into the warehouse."""
    from benchhouse.warehouse.ingest import collect as ingest

    collected = ingest(workspace, run_id, trial_folders(workspace, run_id))
    return {"run_id": run_id, "trials": collected.trials, "rows": collected.rows, "skipped": list(collected.skipped)}


def status(workspace: Workspace, run_id: str) -> dict[str, Any]:
    """State of one run, from the ledger alone."""
    ledger = Ledger(workspace.run(run_id))
    record, events = ledger.record, list(ledger.events())
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
    durations = [event.duration_s for event in final.values() if event.duration_s]
    left = record.trials - len(final)
    return {
        "run_id": run_id,
        "scenario": record.scenario,
        "experiment": f"{record.experiment.name} {record.experiment.version}",
        "executor": record.executor,
        "state": "running" if owner is not None else ("finished" if finished else "interrupted"),
        "owner_pid": owner,
        "created": record.created,
        "trials": record.trials,
        "done": len(final),
        "outcomes": outcomes,
        "retries": sum(event.event == "retry" for event in events),
        "running": _running(workspace, record.scenario, run_id) if owner is not None else [],
        "estimated_left_s": sum(durations) / len(durations) * left if durations and left and not finished else None,
        "failures": [
            {"trial_id": name, "outcome": event.outcome, "reason": event.reason}
            for name, event in final.items()
            if event.outcome != "succeeded"
        ],
        "stopped": events[-1].reason if events and events[-1].event == "budget" else "",
        "next": _next_command(run_id, owner, finished, set(outcomes) - {"succeeded"}),
    }


def _next_command(run_id: str, owner: int | None, finished: bool, failed: Collection[str]) -> str:
    if owner is not None:
        return f"bench status {run_id} --watch"
    if finished and failed:
        return f"bench run --resume {run_id} --rerun-failed"
    return f"bench report {run_id}" if finished else f"bench run --resume {run_id}"


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
    """End a run's orchestrator and everything it started; what a killed one left behind is swept."""
    ledger = Ledger(workspace.run(run_id))
    record = ledger.record
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
        swept = clean_up(workspace, ledger)
    finally:
        ledger.release()
    return {"run_id": record.run_id, "stopped_pid": stopped, "swept_processes": swept}


def clean_up(workspace: Workspace, ledger: Ledger) -> int:
    """Sweep what killed orchestrators and workers left: processes, cgroups, scratch and unfinished folders.

    Call it as the run's owner. Returns how many processes were ended.
    """
    from benchhouse.worker.limits import sweep_cages
    from benchhouse.worker.owned import left_processes, sweep_scratch
    from benchhouse.worker.processes import kill_tree, tagged_processes
    from benchhouse.worker.supervise import LEFTOVERS, TAG

    partials = leftovers(workspace, ledger.record.scenario, ledger.folder.run_id)
    trials = (path.name.rpartition(".")[0] for path in partials)
    left = {*left_processes(), *(pid for trial in trials for pid in tagged_processes(TAG, trial))}
    kill_tree(left, grace_s=0.0)
    sweep_cages(LEFTOVERS)
    sweep_scratch(LEFTOVERS)
    for path in partials:
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or in use
        (workspace.results / ledger.record.scenario / ".partial").rmdir()
    return len(left)


def start_in_background(workspace: Workspace, ledger: Ledger) -> int:
    """Let another process carry the run on; returns its id."""
    log = ledger.folder.path / "orchestrator.log"
    with log.open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchhouse", "-C", str(workspace.root), "run", "--resume", ledger.folder.run_id],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    deadline = time.monotonic() + 10
    while process.poll() is None and ledger.owner() != process.pid and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.returncode == Exit.BAD_INPUT:  # it could not even begin
        raise BenchError("\n".join(log.read_text(errors="replace").strip().splitlines()[-3:]), f"see {log}")
    return process.pid


def failures(workspace: Workspace, run_id: str) -> list[dict[str, Any]]:
    """The failed trials of a run, with what a person needs to go on."""
    found = []
    for item in status(workspace, run_id)["failures"]:
        folder = workspace.trial(Ledger(workspace.run(run_id)).record.scenario, item["trial_id"])
        if folder.sealed:
            meta = read_meta(folder)
            failure = meta.failure
            item = item | {
                "point": _label(read_spec(folder)),
                "code": failure.code if failure else "",
                "message": failure.message if failure else "",
                "traceback": failure.traceback if failure else "",
                "log_tail": failure.log_tail if failure else "",
            }
        found.append(item | {"folder": str(folder.path), "rerun": rerun_line(folder)})
    return found


def warnings(workspace: Workspace, run_id: str) -> dict[str, tuple[str, int]]:
    """Named doubts about a run's numbers: code -> what it says (of the first trial) and how many trials have it."""
    from benchhouse.warehouse.query import Warehouse

    found: dict[str, tuple[str, int]] = {}
    with Warehouse.open(workspace) as warehouse:
        sql = "SELECT warnings FROM trial_fact WHERE outcome = 'succeeded' ORDER BY started, trial_id"
        rows = warehouse.query(sql, runs=[run_id]).rows
    for line in (line for row in rows for line in row[0]):
        code, _, text = line.partition(": ")
        first, number = found.get(code, (text, 0))
        found[code] = (first, number + 1)
    return found


def _label(spec: TrialSpec) -> str:
    values = {f"target.{key}": value for key, value in spec.target.items()} | spec.parameters
    return " ".join(f"{key.removeprefix('target.')}={values[key]}" for key in spec.axes if key in values)


def rerun_line(folder: TrialFolder) -> str:
    return f"bench run {folder.effective_config}"


def _git(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the folder that holds the scenario; empty where that is not a git checkout."""
    command = ["git", "-C", str(folder)]
    try:
        head = subprocess.run([*command, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if head.returncode:
            return {}
        state = subprocess.run([*command, "status", "--porcelain"], capture_output=True, text=True, check=False)
    except OSError:
        return {}
    return {"commit": head.stdout.strip(), "dirty": bool(state.stdout.strip())}
