"""Run, resume, follow and stop: a prepared scenario goes in, sealed and collected trials come out."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchhouse.api import places, readiness
from benchhouse.api.exporting import Export
from benchhouse.api.following import find_run
from benchhouse.api.planning import Prepared, Where, prepare_text
from benchhouse.api.sweeping import clean_up
from benchhouse.catalog.entries import plug
from benchhouse.evidence.writing import now, write_text
from benchhouse.plan import Plan, PlannedTrial
from benchhouse.runs.holding import Enough
from benchhouse.runs.keeping import Attached, Jobs, Keep
from benchhouse.runs.ledger import Ledger, RunRecord, new_run_id
from benchhouse.runs.ledger import list_runs as list_runs
from benchhouse.runs.orchestrate import Orchestrator, Progress
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import RunFolder, Workspace
from benchhouse.schema.problems import printable
from benchhouse.schema.protocols import Assignment, Executor, Job
from benchhouse.schema.record import record
from benchhouse.schema.trial import VERSION_AXIS, trial_id

Say = Callable[[str], None]


@record
class RunSummary:
    """How a run ended."""

    run_id: str
    scenario: str
    outcomes: dict[str, int]
    seconds: float
    complete: bool
    stopped: str
    stopped_by: str = ""  # budget, service

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
    _executor(prepared, workspace.run("RUN"), say=say).close()
    unfinished = None if fresh else _last_of_plan(workspace, prepared, finished_too)
    if warning := readiness.check(workspace, prepared, unfinished):
        say(f"warning: {warning}")
    if unfinished:
        if (owner := unfinished.owner()) is not None:
            raise unfinished.busy(owner)
        changed = changed_conditions(unfinished, prepared)
        if changed and not finished_too:
            say(f"a new run: since {unfinished.folder.run_id} there is another {' and '.join(changed)}")
            return create_run(workspace, prepared, path)
        say(f"resuming run {unfinished.folder.run_id} (bench run --new starts afresh)")
        # What the plan does not cover, such as the budget, may have been edited.
        write_text(unfinished.folder.scenario, prepared.file.text)
        return unfinished
    return create_run(workspace, prepared, path)


def conditions(prepared: Prepared) -> dict[str, str]:
    """What a measurement depends on besides the plan: trials made under different ones don't belong into one mean."""
    scenario = prepared.plan.scenario
    image = prepared.image_digest()
    return {
        "experiment code": prepared.code_digest,
        "environment": digest(dict(scenario.environment)),
        "runtime": digest(scenario.runtime.model_dump(exclude=None if scenario.runtime.shared else {"shared"})),
        "resources": digest(prepared.plan.resources.model_dump()),
    } | ({"image": image} if image else {})


def changed_conditions(ledger: Ledger, prepared: Prepared) -> list[str]:
    before = ledger.record.conditions
    return [name for name, value in conditions(prepared).items() if before.get(name, value) != value]


def _executor(
    prepared: Prepared, run: RunFolder, parallel: int | None = None, *, check: bool = True, say: Say = lambda text: None
) -> Executor:
    """The scenario's executor; raises at once when it can't give what a trial asks for."""
    scenario = prepared.plan.scenario
    assignment = Assignment(parallel or scenario.parallel, scenario, prepared.site, run, say)
    executor: Executor = plug("executors", scenario.executor)(assignment)
    if not check:
        return executor
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
        site=prepared.site_name,
        host=os.uname().nodename,
        command=sys.argv,
        conditions=conditions(prepared),
    )
    benchmark_text = prepared.registered.document.text if prepared.registered else None
    return Ledger.create(workspace, record, prepared.file.text, benchmark_text)


def resume_run(workspace: Workspace, token: str, elsewhere: Where | None = None) -> tuple[Ledger, Prepared]:
    """An earlier run and its plan, read from the ledger alone; what is missing may run `elsewhere`.

    The plan does not cover where it runs, so its digest stays; each trial's evidence says which executor ran it.
    """
    ledger = Ledger(workspace.run(find_run(workspace, token)))
    text = ledger.folder.scenario.read_text(encoding="utf-8")
    home = Path(ledger.record.scenario_file).parent
    record = ledger.record
    asked = elsewhere or Where()
    if asked.executor not in (None, record.executor) and ledger.goes_on():
        raise BenchError(
            f"jobs of run {ledger.folder.run_id} may still be under way on {record.executor}",
            f"end them first: bench stop {ledger.folder.run_id}",
        )
    where = Where(asked.executor or record.executor, record.runtime, asked.site or record.site)
    prepared = prepare_text(workspace, text, str(ledger.folder.scenario), home, where)
    if prepared.plan.digest != ledger.record.plan_digest:
        raise BenchError(
            f"run {ledger.folder.run_id} was planned as {ledger.record.plan_digest[:12]}, "
            f"its scenario now plans as {prepared.plan.digest[:12]}",
            "the experiment's package or the environment has changed; start afresh: bench run --new",
        )
    if where.executor != record.executor:
        prepared.notes.append(f"this run began on {record.executor}; what is missing runs on {where.executor}")
    for name in changed_conditions(ledger, prepared):
        prepared.notes.append(
            f"another {name} than when this run began: its numbers mix the two (bench run --new keeps them apart)"
        )
    return ledger, prepared


def _last_of_plan(workspace: Workspace, prepared: Prepared, finished_too: bool) -> Ledger | None:
    for run_id in reversed(list_runs(workspace)):
        ledger = Ledger(workspace.run(run_id))
        record = ledger.record
        if record.scenario != prepared.plan.scenario.scenario or record.plan_digest != prepared.plan.digest:
            continue
        finished = any(event.event == "finished" for event in ledger.events())
        here = prepared.plan.scenario.executor
        if record.executor == here:
            return None if finished and not finished_too else ledger
        if not finished:
            prepared.notes.append(
                f"run {run_id} of this plan is unfinished on {record.executor}; "
                f"to finish it here:  bench run --resume {run_id} --executor {here}"
            )
    return None


@contextmanager
def orchestrator(
    workspace: Workspace,
    prepared: Prepared,
    ledger: Ledger,
    show: Callable[[Progress], None] = lambda progress: None,
    *,
    parallel: int | None = None,
    rerun_failed: bool = False,
    say: Say = lambda text: None,
    export: Export | None = None,
) -> Iterator[Orchestrator]:
    """Own a run for a while, with everything made that its trials need."""
    plan = prepared.plan
    scenario = plan.scenario
    ledger.own()
    executor = attached = made = None
    try:
        if not ledger.goes_on():
            clean_up(workspace, ledger)
        place, runtime = prepared.place(workspace), plug("runtimes", scenario.runtime.kind)()
        runtime.prepare(scenario.runtime, place)
        executor = _executor(prepared, ledger.folder, parallel, say=say)
        images = places.images_if_known(prepared.site)
        frame = {
            "code_digest": prepared.code_digest,
            "parallel": parallel or scenario.parallel,
            "plan_digest": plan.digest,
            "folder": plan.input_folder,
            "source": _git(prepared.home),
            "cache": str(places.cache()),
            "container_digest": prepared.image_digest(),
            "images": images,
            "interface": prepared.site.network.interface,
            "site": prepared.site.site,
            "cluster": prepared.site.cluster.model_dump(exclude_none=True),
        } | ({"monitors": export.monitors} if export else {})
        python = runtime.python(scenario.runtime, place)
        jobs = _jobs(prepared, executor, python)
        attached = Attached(ledger.folder.services, plan.services, ledger.folder.run_id, images, jobs)
        attached.start(say, _keep)
        made = Orchestrator(
            workspace, plan, ledger, executor, python, frame,
            export.following(show) if export else show,
            rerun_failed, attached, export.sealed if export else None,
            _enough(workspace, plan, ledger.folder.run_id) if scenario.until else None,
        )  # fmt: skip
        yield made
    finally:
        over = not (made and made.active)  # else its jobs go on, and their services with them
        if executor is not None:
            if over:
                executor.end_services()
            executor.close()
        if attached is not None and (over or attached.ours):
            attached.close()
        ledger.release()


def _enough(workspace: Workspace, plan: Plan, run_id: str) -> Enough:
    from benchhouse.api import stopping

    return stopping.rule(workspace, plan, run_id)


def execute(
    workspace: Workspace, prepared: Prepared, ledger: Ledger, show: Callable[[Progress], None], **settings: Any
) -> RunSummary:
    """Run what is missing of a run. The ledger and the folders are true at every moment."""
    started = time.monotonic()
    with orchestrator(workspace, prepared, ledger, show, **settings) as owner:
        ledger.tell("resumed" if any(ledger.events()) else "started")
        outcomes = owner.run()
    counted = sum(outcomes.values()) - outcomes.get("lost", 0) + owner.holding.skipped
    complete = counted == prepared.plan.trial_count
    return RunSummary(
        ledger.folder.run_id,
        prepared.plan.scenario.scenario,
        outcomes,
        time.monotonic() - started,
        complete,
        owner.stopped,
        owner.stopped_by if owner.stopped else "",
    )


def _jobs(prepared: Prepared, executor: Executor, python: tuple[str, ...]) -> Jobs | None:
    """How the run's services become jobs, where its trials are jobs that outlive us."""
    return Jobs(executor.keepers, python, prepared.site.network.interface) if executor.keepers else None


def _keep() -> Keep:
    from benchhouse.worker.keeper import keep

    return keep


def render(workspace: Workspace, prepared: Prepared, jobs: int = 3) -> str:
    """What would be started, exactly, for the first trials."""
    plan = prepared.plan
    run_id = "RUN"
    python = plug("runtimes", plan.scenario.runtime.kind)().python(plan.scenario.runtime, prepared.place(workspace))
    rendered = []
    for planned in plan.trials():
        name = trial_id(run_id, planned.instance_digest, planned.repetition, planned.warmup)
        folder = workspace.partial(plan.scenario.scenario, name, 1).path
        label = ", ".join(f"{key}={printable(str(value))}" for key, value in _point(plan, planned).items())
        kind = "warm-up" if planned.warmup else "repetition"
        label = f"{label or plan.scenario.scenario}, {kind} {planned.repetition}, seed {planned.seed}"
        rendered.append(Job(name, folder, python, plan.resources, folder, label))
        if len(rendered) == jobs:
            break
    executor = _executor(prepared, workspace.run(run_id), check=False)
    if not executor.outlives:  # a cluster may be looked at from anywhere
        executor.check(plan.resources)
    run = workspace.run(run_id)
    attached = Attached(run.services, plan.services, run_id, jobs=_jobs(prepared, executor, python))
    texts = [*attached.scripts(), executor.render(rendered, plan.trial_count)]
    executor.close()
    return "\n".join(texts) + _entering(workspace, prepared)


def _entering(workspace: Workspace, prepared: Prepared) -> str:
    """The script that enters the container, where there is one; an image need not be here to be planned for."""
    try:
        container = prepared.container(workspace)
    except BenchError as error:
        return f"\n# {error.message}"
    return f"\n\n# and this is what enters the container:\n{container.script}" if container else ""


def _point(plan: Plan, planned: PlannedTrial) -> dict[str, Any]:
    """The values of the axes at one trial, as far as they are plain."""
    from benchhouse.warehouse.labels import axis_value

    values = {
        key: planned.experiment.version if key == VERSION_AXIS else axis_value(planned.target, planned.parameters, key)
        for key in plan.axes
    }
    return {key: value for key, value in values.items() if not isinstance(value, dict | list | None)}


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
