"""Run, resume, and collect: take a prepared scenario to sealed and collected trials."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from benchhouse.catalog.entries import plug
from benchhouse.evidence.data_cache import DataCache
from benchhouse.evidence.folder import list_sealed, read_spec
from benchhouse.plan.expand import Plan, PlannedTrial
from benchhouse.processes.durable import make_folders, sync
from benchhouse.runs import batch, stopping_rule
from benchhouse.runs.approval import NeedsApprovalError, admit
from benchhouse.runs.checkout import checkout
from benchhouse.runs.cleanup import clean_up
from benchhouse.runs.external_servers import ExternalServers
from benchhouse.runs.hot_metrics import MetricsTextFile
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.orchestrate import Orchestrator, ProgressReport
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.records import check_packages, check_resources, open_executor, resume_run
from benchhouse.runs.service_control import Attached, Jobs, Keep
from benchhouse.runs.setup import RunSetup
from benchhouse.schema.artifacts import StagedDataset
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.protocols import Executor, Job, Runtime, RuntimeContext
from benchhouse.schema.quoting import printable
from benchhouse.schema.resources import RuntimeSettings as RuntimeSpec
from benchhouse.schema.trial import trial_id
from benchhouse.sites import places
from benchhouse.sites.image_lock import read_lock


@dataclass(frozen=True)
class RunSummary:
    """The result of a run."""

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
    """Options of a run that do not change what is measured."""

    parallel: int | None = None
    rerun_failed: bool = False
    export: MetricsTextFile | None = None
    keep: Callable[[], Keep] | None = None
    """Returns the function that keeps an attached server in a forked keeper; None starts a new interpreter."""


class RunListener(Protocol):
    """Receiver of a run's progress, from its first line to its end."""

    def begin(self, run_id: str, plan: Plan) -> None: ...

    def note(self, text: str) -> None: ...

    def update(self, progress: ProgressReport) -> None: ...

    def end(self) -> None: ...


class Quiet:
    """A listener that ignores everything."""

    def begin(self, run_id: str, plan: Plan) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def update(self, progress: ProgressReport) -> None:
        pass

    def end(self) -> None:
        pass


QUIET = Quiet()


@contextlib.contextmanager
def orchestrator(
    workspace: WorkspaceFolder,
    prepared: PreparedRun,
    ledger: Ledger,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: RunListener = QUIET,
    *,
    only_look: bool = False,
) -> Iterator[Orchestrator]:
    """Own a run for a while, with everything prepared that its trials need.

    All code that starts trials goes through here: the run is held to what its submitter may start or what was approved.
    """
    prepared = prepared if only_look else admit(workspace, prepared, ledger)
    plan, scenario, export = prepared.plan, prepared.plan.scenario, options.export
    ledger.own()
    executor = attached = owner = None
    there = ExternalServers(prepared, ledger.folder)
    try:
        if not ledger.goes_on():
            clean_up(workspace, ledger)
        place, runtime = prepared.place(workspace), plug("runtimes", scenario.runtime.kind)()
        for spec in plan.runtimes:
            runtime.prepare(spec, place)
        executor = open_executor(prepared, ledger.folder, options.parallel, say=listener.note)
        python = runtime.python(scenario.runtime, place)
        images = places.images_if_known(prepared.site)
        jobs = _jobs(prepared, executor, python)
        there.start()
        attached = Attached(ledger.folder, there.for_trials(), images, jobs)
        attached.start(listener.note, options.keep)
        show = export.following(listener.update) if export else listener.update
        enough = stopping_rule.rule(workspace, plan, ledger.folder.run_id) if scenario.until else None
        frame = _frame(prepared, options, images) | {"image_pins": read_lock(workspace.image_lock).digests}
        setup = RunSetup(workspace, plan, ledger, executor, _pythons(plan, runtime, place), frame, attached)
        sealed = export.sealed if export else None
        owner = Orchestrator(setup, show, sealed, enough, rerun_failed=options.rerun_failed)
        yield owner
    finally:
        goes_on = executor is not None and executor.outlives and owner is not None and owner.active
        over = not goes_on  # otherwise its jobs continue, and so do their services
        if executor is not None:
            if over:
                executor.end_services()
            executor.close()
        if attached is not None and (over or attached.ours):
            attached.close()
        there.close()
        ledger.release()


def _pythons(plan: Plan, runtime: Runtime, place: RuntimeContext) -> Callable[[RuntimeSpec], tuple[str, ...]]:
    """Return a function that gives the Python command of an environment of the plan; each is determined only once."""
    commands = [(spec, runtime.python(spec, place)) for spec in plan.runtimes]
    return lambda wanted: next(command for spec, command in commands if spec == wanted)


def _staged(plan: Plan) -> StagedDataset | None:
    """Copy the scenario's dataset to where trials find it, so that later changes of the source file do no harm."""
    dataset, code = plan.scenario.artifacts.dataset, plan.code
    if dataset is None or code is None:
        return None
    source = plan.folder / Path(dataset.path).expanduser()
    copy = DataCache(places.cache(), code.name, ()).keep(source, dataset.sha256)
    told = {"name": dataset.path, "sha256": dataset.sha256, "licence": dataset.licence}
    return StagedDataset(**told, input=code.dataset, path=str(copy), bytes=copy.stat().st_size)


def _frame(prepared: PreparedRun, options: RunOptions, images: str) -> dict[str, Any]:
    frame = {
        "code_digest": prepared.code_digest,
        "parallel": options.parallel or prepared.plan.scenario.parallel,
        "plan_digest": prepared.plan.digest,
        "labels": dict(prepared.plan.scenario.labels),
        "folder": prepared.plan.input_folder,
        "source": checkout(prepared.home),
        "cache": str(places.cache()),
        "container_digest": prepared.image_digest(),
        "images": images,
        "interface": prepared.site.network.interface,
        "site": prepared.site.site,
        "cluster": prepared.site.cluster.model_dump(exclude_none=True),
        "dataset": _staged(prepared.plan),
    }
    if prepared.approval:
        frame["approval"] = prepared.approval.approval.named().model_dump()
    if prepared.contract:
        frame["contract"] = prepared.contract.terms.model_dump(mode="json", by_alias=True, exclude_none=True)
    return frame | ({"monitors": options.export.monitors} if options.export else {})


def execute(
    workspace: WorkspaceFolder, prepared: PreparedRun, ledger: Ledger, options: RunOptions, listener: RunListener
) -> RunSummary:
    """Run what is missing of a run. The ledger and the folders are consistent at every moment."""
    started = time.monotonic()
    check_packages(workspace, prepared)  # also for a run that is resumed
    with orchestrator(workspace, prepared, ledger, options, listener) as owner:
        ledger.tell("resumed" if any(ledger.events()) else "started")
        outcomes = owner.run()
    counted = sum(outcomes.values()) - outcomes.get("lost", 0) + owner.holding.skipped
    complete, seconds = counted == prepared.plan.trial_count, time.monotonic() - started
    stopped_by = owner.stopped_by if owner.stopped else ""
    names = ledger.folder.run_id, prepared.plan.scenario.scenario
    return RunSummary(*names, outcomes, seconds, complete, owner.stopped, stopped_by)


def _jobs(prepared: PreparedRun, executor: Executor, python: tuple[str, ...]) -> Jobs | None:
    """Return how the run's services become jobs if its trials are jobs that outlive this process; None otherwise."""
    return Jobs(executor.keepers, python, prepared.site.network.interface) if executor.keepers else None


def render(workspace: WorkspaceFolder, prepared: PreparedRun, jobs: int = 3) -> str:
    """Return exactly what would be started for the first `jobs` trials."""
    plan, run = prepared.plan, workspace.run("RUN")
    if carrier := batch.carrier(prepared, run):
        return carrier.render(*batch.handover(workspace, run, prepared.site_name))
    runtime, place = plug("runtimes", plan.scenario.runtime.kind)(), prepared.place(workspace)
    python = _pythons(plan, runtime, place)
    rendered = []
    for planned in islice(plan.trials(), jobs):
        name = trial_id(run.run_id, planned.instance_digest, planned.repetition, planned.warmup)
        folder = workspace.partial(plan.scenario.scenario, name, 1).path
        label = ", ".join(f"{key}={printable(str(value))}" for key, value in _point(plan, planned).items())
        kind = "warm-up" if planned.warmup else "repetition"
        label = f"{label or plan.scenario.scenario}, {kind} {planned.repetition}, seed {planned.seed}"
        rendered.append(Job(name, folder, python(planned.runtime), planned.resources, folder, label))
    executor = open_executor(prepared, run, check=False)
    if not executor.outlives:  # a cluster may be inspected from anywhere
        check_resources(executor, plan)
    attached = Attached(run, plan.services, "", _jobs(prepared, executor, python(plan.scenario.runtime)))
    texts = [*attached.scripts(), executor.render(rendered, plan.trial_count)]
    executor.close()
    return "\n".join(texts) + _entering(workspace, prepared)


def _entering(workspace: WorkspaceFolder, prepared: PreparedRun) -> str:
    """Return the script that enters the container, empty without one; the reason if its image is missing."""
    try:
        container = prepared.container(workspace)
    except BenchError as error:
        return f"\n# cannot run: {error.message}"
    return f"\n\n# and this is what enters the container:\n{container.script}" if container else ""


def _point(plan: Plan, planned: PlannedTrial) -> dict[str, Any]:
    from benchhouse.warehouse.labels import axis_value

    values = {key: axis_value(planned, key) for key in plan.axes}
    return {key: value for key, value in values.items() if not isinstance(value, dict | list | None)}


def start_in_background(workspace: WorkspaceFolder, ledger: Ledger) -> int:
    """Resume the run in another process and return its id."""
    words = ["run", "--resume", ledger.folder.run_id]
    return start_background_bench(workspace, words, ledger.folder.path / "orchestrator.log", ledger.owner)


def start_background_bench(
    workspace: WorkspaceFolder, words: Sequence[str], log: Path, owner: Callable[[], int | None]
) -> int:
    """Start `bench WORDS` as a process that outlives this one, wait until it owns its work, and return its id."""
    command = [sys.executable, "-m", "benchhouse", "-C", str(workspace.root), *words]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + 10
    while process.poll() is None and owner() != process.pid and time.monotonic() < deadline:
        time.sleep(0.02)
    if process.returncode in (Exit.BAD_INPUT, Exit.NEEDS_APPROVAL):  # it could not even begin
        raise BenchError("\n".join(log.read_text(errors="replace").strip().splitlines()[-3:]), f"see {log}")
    return process.pid


def hand_over(workspace: WorkspaceFolder, prepared: PreparedRun, ledger: Ledger) -> int:
    """Submit everything that is missing to the batch system and return the number of trials under way."""
    check_packages(workspace, prepared)
    with orchestrator(workspace, prepared, ledger) as owner:
        ledger.tell("submitted")
        return owner.hand_over(again=True)


def turn(workspace: WorkspaceFolder, run_id: str) -> int | None:
    """Record what ended and resubmit what broke. Return None if another process owns the run or no jobs are left."""
    ledger = Ledger(workspace.run(run_id))
    if not ledger.goes_on() or ledger.owner() is not None:
        return None
    ledger, prepared = resume_run(workspace, run_id)
    only_look = False
    try:
        admit(workspace, prepared, ledger)
    except NeedsApprovalError:  # sealed trials are collected anyway
        only_look = True
    with orchestrator(workspace, prepared, ledger, only_look=only_look) as owner:
        return owner.hand_over(again=False, only_look=only_look)


@dataclass(frozen=True)
class CollectionReport:
    """The result of a collection: what is in the tables now, and what could not be read."""

    run_id: str
    trials: int
    rows: int
    skipped: tuple[str, ...] = ()
    """Sealed trials that could not be read, each with the reason."""
    under_way: int = 0
    """Number of trials whose jobs continue without this process."""
    unread_events: int = 0
    """Number of ledger events that a newer version wrote and this one can't read."""


def trial_folders(workspace: WorkspaceFolder, run_id: str, unread: list[str] | None = None) -> list[Path]:
    """Return the sealed folders of a run, by its ledger; unreadable lines of the ledger go to `unread`."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    ended = (event.trial_id for event in ledger.events(unread) if event.event == "ended")
    names = dict.fromkeys(name for name in ended if name)
    folders = [workspace.trial(scenario, name) for name in names]
    return [folder.path for folder in folders if folder.sealed]


def unrecorded(workspace: WorkspaceFolder, scenario: str, run_id: str, recorded: Collection[str]) -> list[TrialFolder]:
    """Return sealed folders of a run that its ledger lacks because it was damaged or killed at the last moment."""
    folders = []
    for path in list_sealed(workspace.results, scenario):
        if path.name.partition(".")[0] not in recorded:
            with contextlib.suppress(FileNotFoundError, ValueError):
                if read_spec(TrialFolder(path)).run_id == run_id:
                    folders.append(TrialFolder(path))
    return folders


def collect(
    workspace: WorkspaceFolder, run_id: str, *, unless_complete: bool = False, killed: bool = False
) -> CollectionReport:
    """Put a run's sealed trials into the tables; if its jobs continue without this process, check on them first.

    `unless_complete` leaves the tables unchanged if they hold all trials already. If the orchestrator was `killed`, its
    ledger may lack the last trial. A run that was pulled from elsewhere has no ledger here, only tables; its report is
    empty.
    """
    if not workspace.run(run_id).record.is_file():
        return CollectionReport(run_id, 0, 0)
    under_way = turn(workspace, run_id) or 0
    unread: list[str] = []
    folders = trial_folders(workspace, run_id, unread)
    if killed:
        scenario, names = Ledger(workspace.run(run_id)).record.scenario, {path.name for path in folders}
        folders += [item.path for item in unrecorded(workspace, scenario, run_id, names) if "." not in item.path.name]
    if unless_complete and _is_complete(workspace, run_id, folders):
        return CollectionReport(run_id, len(folders), 0, under_way=under_way)
    from benchhouse.warehouse.ingest import collect as ingest  # imports pyarrow

    try:
        collected = ingest(workspace, run_id, folders)
    except OSError as error:
        message = f"the trials are sealed, but could not be collected: {unwritable(workspace.warehouse, error).message}"
        raise BenchError(message, f"make room, then: bench collect {run_id}", Exit.TRIAL_FAILED) from error
    if not collected.refused:  # otherwise the next command tries again
        with contextlib.suppress(OSError):
            (workspace.uncollected / run_id).unlink(missing_ok=True)
    return CollectionReport(run_id, collected.trials, collected.rows, tuple(collected.skipped), under_way, len(unread))


def to_collect(workspace: WorkspaceFolder, run_id: str) -> None:
    """Mark a run as still to be collected, in case this process dies first."""
    make_folders(workspace.uncollected)
    (workspace.uncollected / run_id).touch()
    sync(workspace.uncollected)


def collect_forgotten(workspace: WorkspaceFolder, note: Callable[[str], None]) -> list[str]:
    """Collect the sealed trials of runs whose orchestrators were killed, as far as possible now. Return the ids."""
    found = []
    for run_id in sorted(path.name for path in workspace.uncollected.iterdir()):
        if Ledger(workspace.run(run_id)).owner() is not None:
            continue
        try:
            collected = collect(workspace, run_id, killed=True)
        except (BenchError, OSError) as error:
            why = error.message if isinstance(error, BenchError) else str(error)
            note(f"{run_id} was killed before it was collected, and can't be now: {why}")
            continue
        if collected.trials:
            found.append(run_id)
            note(f"{run_id} was killed before it was collected: what it had sealed is in the tables now")
        for line in collected.skipped:
            note(f"not collected: {line}")
    return found


def _is_complete(workspace: WorkspaceFolder, run_id: str, folders: list[Path]) -> bool:
    from benchhouse.warehouse.queries import is_collected
    from benchhouse.warehouse.query import Warehouse

    with Warehouse.open(workspace) as warehouse:
        return is_collected(warehouse, run_id, folders)
