"""Run, resume, follow and stop: a prepared scenario goes in, sealed and collected trials come out."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchhouse.catalog.entries import plug
from benchhouse.plan import Plan, PlannedTrial
from benchhouse.runs.cleanup import clean_up
from benchhouse.runs.held_trials import Enough
from benchhouse.runs.hot_metrics import Export
from benchhouse.runs.keepers import Attached, Jobs, Keep
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.ledger import list_runs as list_runs
from benchhouse.runs.orchestrate import Orchestrator, Progress, RunHooks
from benchhouse.runs.preparation import Prepared
from benchhouse.runs.records import open_executor, resume_run
from benchhouse.runs.setup import RunSetup
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Executor, Job
from benchhouse.schema.quoting import printable
from benchhouse.schema.trial import VERSION_AXIS, trial_id
from benchhouse.sites import places

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
    stopped_by: str = ""  # budget, service

    @property
    def exit_code(self) -> Exit:
        good = self.complete and set(self.outcomes) <= {"succeeded"}
        return Exit.GOOD if good else Exit.TRIAL_FAILED


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; nothing here changes what is measured."""

    parallel: int | None = None
    rerun_failed: bool = False
    export: Export | None = None
    keep: Callable[[], Keep] | None = None
    """Gives what keeps an attached server, so that a keeper can be forked; a new interpreter is started otherwise."""


class Listener(Protocol):
    """Who is told how a run goes on."""

    def note(self, text: str) -> None: ...

    def update(self, progress: Progress) -> None: ...


class Silent:
    """Nobody listens."""

    def note(self, text: str) -> None:
        pass

    def update(self, progress: Progress) -> None:
        pass


@contextmanager
def orchestrator(
    workspace: WorkspaceFolder,
    prepared: Prepared,
    ledger: Ledger,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Silent(),  # noqa: B008 - without state
) -> Iterator[Orchestrator]:
    """Own a run for a while, with everything made that its trials need."""
    plan, scenario, export = prepared.plan, prepared.plan.scenario, options.export
    ledger.own()
    executor = attached = made = None
    try:
        if not ledger.goes_on():
            clean_up(workspace, ledger)
        place, runtime = prepared.place(workspace), plug("runtimes", scenario.runtime.kind)()
        runtime.prepare(scenario.runtime, place)
        executor = open_executor(prepared, ledger.folder, options.parallel, say=listener.note)
        python = runtime.python(scenario.runtime, place)
        images = places.images_if_known(prepared.site)
        jobs = _jobs(prepared, executor, python)
        attached = Attached(ledger.folder.services, plan.services, ledger.folder.run_id, images, jobs)
        attached.start(listener.note, options.keep)
        frame = _frame(prepared, options, images)
        hooks = RunHooks(
            show=export.following(listener.update) if export else listener.update,
            sealed=export.sealed if export else None,
            enough=_enough(workspace, plan, ledger.folder.run_id) if scenario.until else None,
        )
        setup = RunSetup(workspace, plan, ledger, executor, python, frame, attached)
        made = Orchestrator(setup, hooks, rerun_failed=options.rerun_failed)
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


def _frame(prepared: Prepared, options: RunOptions, images: str) -> dict[str, Any]:
    """What all trials of a run are told alike."""
    frame = {
        "code_digest": prepared.code_digest,
        "parallel": options.parallel or prepared.plan.scenario.parallel,
        "plan_digest": prepared.plan.digest,
        "folder": prepared.plan.input_folder,
        "source": _git(prepared.home),
        "cache": str(places.cache()),
        "container_digest": prepared.image_digest(),
        "images": images,
        "interface": prepared.site.network.interface,
        "site": prepared.site.site,
        "cluster": prepared.site.cluster.model_dump(exclude_none=True),
    }
    return frame | ({"monitors": options.export.monitors} if options.export else {})


def _enough(workspace: WorkspaceFolder, plan: Plan, run_id: str) -> Enough:
    from benchhouse.runs import stopping_rule

    return stopping_rule.rule(workspace, plan, run_id)


def execute(
    workspace: WorkspaceFolder,
    prepared: Prepared,
    ledger: Ledger,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Silent(),  # noqa: B008 - without state
) -> RunSummary:
    """Run what is missing of a run. The ledger and the folders are true at every moment."""
    started = time.monotonic()
    with orchestrator(workspace, prepared, ledger, options, listener) as owner:
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


def render(workspace: WorkspaceFolder, prepared: Prepared, jobs: int = 3) -> str:
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
    executor = open_executor(prepared, workspace.run(run_id), check=False)
    if not executor.outlives:  # a cluster may be looked at from anywhere
        executor.check(plan.resources)
    run = workspace.run(run_id)
    attached = Attached(run.services, plan.services, run_id, jobs=_jobs(prepared, executor, python))
    texts = [*attached.scripts(), executor.render(rendered, plan.trial_count)]
    executor.close()
    return "\n".join(texts) + _entering(workspace, prepared)


def _entering(workspace: WorkspaceFolder, prepared: Prepared) -> str:
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


def start_in_background(workspace: WorkspaceFolder, ledger: Ledger) -> int:
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


def hand_over(workspace: WorkspaceFolder, prepared: Prepared, ledger: Ledger) -> int:
    """Give all that is missing to the batch system; returns how many trials are on their way."""
    with orchestrator(workspace, prepared, ledger) as owner:
        ledger.tell("submitted")
        return owner.hand_over(again=True)


def turn(workspace: WorkspaceFolder, run_id: str) -> int | None:
    """Write down what ended, submit again what the infrastructure broke; None where somebody else is at it.

    Does nothing for a run that is over, or whose jobs never left this machine.
    """
    ledger = Ledger(workspace.run(run_id))
    if not ledger.goes_on() or ledger.owner() is not None:
        return None
    ledger, prepared = resume_run(workspace, run_id)
    with orchestrator(workspace, prepared, ledger) as owner:
        return owner.hand_over(again=False)
