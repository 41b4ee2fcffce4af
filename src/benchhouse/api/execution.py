"""The path that every run takes: prepare, open, execute, collect, summarize."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from pydantic_core import PydanticSerializationError, to_jsonable_python

from benchhouse.catalog.entries import plug
from benchhouse.documents.yaml_writer import dump_yaml
from benchhouse.evidence.writing import write_model
from benchhouse.runs import batch, execution, hot_metrics
from benchhouse.runs.approval import NeedsApprovalError, admit
from benchhouse.runs.execution import QUIET as QUIET
from benchhouse.runs.execution import CollectionReport, RunOptions, RunSummary, collect
from benchhouse.runs.execution import Quiet as Quiet
from benchhouse.runs.execution import RunListener as RunListener
from benchhouse.runs.execution import start_background_bench as start_background_bench
from benchhouse.runs.ledger import Ledger, ScheduledRun
from benchhouse.runs.preparation import Where, prepare, prepare_all, prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.records import open_run, resume_run
from benchhouse.runs.service_control import Keep
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quoting import quote
from benchhouse.schema.resources import Budget
from benchhouse.schema.scenario import Scenario
from benchhouse.schema.site import site_folder
from benchhouse.sites import places


@dataclass(frozen=True)
class ScenarioText:
    """The text of a scenario file, for callers that have no file. Messages refer to it by `name`.

    `read_only` is for text from a client that may only read: planning it does not create or enter an environment.
    """

    text: str
    name: str = "<scenario>"
    read_only: bool = False


Source = str | os.PathLike[str] | Mapping[str, Any] | Scenario | ScenarioText
"""A scenario: the path of its file, its text, its content as a dict, or `Scenario(...)`."""


@dataclass(frozen=True)
class RunSettings:
    """How a run is executed. Nothing here changes what is measured."""

    parallel: int | None = None
    rerun_failed: bool = False
    textfile: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


class PlaceKeywords(TypedDict, total=False):
    """Settings of the place where a scenario runs. They override the scenario and the site profile."""

    executor: str | None
    """local, slurm, ray, dask, spark, kubernetes or ado."""
    runtime: str | None
    """process, venv or apptainer."""
    site: str | None
    """A site profile: its file, or the name of a shipped one."""
    contract: str | os.PathLike[str] | None
    """File of the contract that governs the run, instead of the one that the scenario names."""


class RunKeywords(PlaceKeywords, total=False):
    """How a run is executed (the fields of `RunSettings`), and where it runs."""

    parallel: int | None
    """Number of trials at a time, overriding the scenario."""
    rerun_failed: bool
    """Repeat trials that failed."""
    textfile: Path | None
    """A file for node_exporter that is kept up to date during the run."""
    labels: Mapping[str, str]
    """Labels of the samples in that file."""


def settings_of(keywords: RunKeywords) -> tuple[PlaceKeywords, RunSettings]:
    """Return where a run goes, and how it is executed."""
    rest: dict[str, Any] = dict(keywords)
    places: Any = {key: rest.pop(key) for key in PlaceKeywords.__annotations__ if key in rest}
    return places, RunSettings(**rest)


def scenario_inside(root: Path, name: str) -> Path:
    """Return a scenario file of a workspace, for a caller that may not read any other file."""
    root = root.resolve()
    path = root / name
    hidden = any(part.startswith(".") for part in Path(name).parts)
    try:
        path = path.resolve()
        there = path.is_relative_to(root) and path.suffix in (".yaml", ".yml") and path.is_file()
    except (OSError, ValueError):  # no file can have such a name
        there = False
    if hidden or not there:
        raise NotFoundError(f"there is no scenario file {quote(name)} in the workspace", "give its path there")
    return path


def prepare_source(workspace: WorkspaceFolder, source: Source, where: PlaceKeywords) -> tuple[PreparedRun, Path]:
    """Return a scenario, read and planned, and its file, or a label for it.

    A scenario that was made in Python has no file: its relative paths start at the workspace, and messages quote it as
    YAML.
    """
    if isinstance(source, str | os.PathLike):
        return prepare(workspace, Path(source), Where(**where)), Path(source)
    if isinstance(source, ScenarioText):
        place = Where(**where, read_only=source.read_only)
        return prepare_text(workspace, source.text, source.name, workspace.root, place), Path(source.name)
    if isinstance(source, Scenario):
        source = source.model_dump(mode="json", exclude_unset=True, by_alias=True)
    label = Path(f"<scenario {source.get('scenario', '')}>")  # the scenario has no file
    try:
        text = dump_yaml(to_jsonable_python(dict(source)))
    except PydanticSerializationError as error:
        raise BenchError(
            f"{label} holds what YAML has no form for: {error}", "use text, numbers, lists and dicts"
        ) from error
    return prepare_text(workspace, text, str(label), workspace.root, Where(**where)), label


def prepare_every(workspace: WorkspaceFolder, source: Source, where: PlaceKeywords) -> list[tuple[PreparedRun, Path]]:
    """Do the same for a source that may be a space of ado: one plan for each of its experiments."""
    if isinstance(source, str | os.PathLike):
        return [(prepared, Path(source)) for prepared in prepare_all(workspace, Path(source), Where(**where))]
    return [prepare_source(workspace, source, where)]


def carry_out(
    workspace: WorkspaceFolder,
    ledger: Ledger,
    prepared: PreparedRun,
    settings: RunSettings = RunSettings(),  # noqa: B008 - frozen
    listener: RunListener = QUIET,
) -> RunSummary:
    """Execute the missing trials of a run, collect it, and check the alarms.

    Finished trials are also collected if the run is interrupted or aborts; the exception is then raised again.
    """
    for line in prepared.notes:
        listener.note(f"note: {line}")
    run_id = ledger.folder.run_id
    export = hot_metrics.open_export(prepared, settings.textfile, run_id, settings.labels, listener.note)
    options = RunOptions(settings.parallel, settings.rerun_failed, export, keeper)
    listener.begin(run_id, prepared.plan)
    execution.to_collect(workspace, run_id)
    try:
        summary = execution.execute(workspace, prepared, ledger, options, listener)
    except (KeyboardInterrupt, BenchError, OSError):
        with contextlib.suppress(BenchError, OSError):  # finished trials are kept, whatever aborted the run
            _collect(workspace, run_id, listener)
        raise
    finally:
        listener.end()
    collected = collect_run(workspace, run_id, listener)
    return replace(summary, complete=summary.complete and not collected.skipped)


def collect_run(workspace: WorkspaceFolder, run_id: str, listener: RunListener) -> CollectionReport:
    """Collect the sealed trials of a run into the tables, share them if workspace.yaml requires it, and check the
    alarms."""
    collected = _collect(workspace, run_id, listener)
    if workspace.settings.is_file():
        from benchhouse.runs import sharing

        sharing.after_run(workspace, listener.note)
    if workspace.alarms.is_file():
        from benchhouse.automation import alarms, notices

        alarms.after_run(workspace, listener.note)
        notices.run_ended(workspace, run_id, listener.note)
    return collected


@dataclass(frozen=True)
class SubmittedRun:
    """A run that continues without this process: as jobs of a batch system, one job of a cluster, or a local
    process."""

    run_id: str
    trials: int
    under_way: int | None = None
    """Number of trials that were handed to a batch system."""
    job: str | None = None
    """The cluster job that runs all trials."""
    pid: int | None = None
    """The process that runs the trials on this machine."""


def submit(workspace: WorkspaceFolder, prepared: PreparedRun, ledger: Ledger, listener: RunListener) -> SubmittedRun:
    """Hand a run over to what will execute it, and return."""
    prepared = admit(workspace, prepared, ledger)
    run_id, trials = ledger.folder.run_id, prepared.plan.trial_count
    outlives = plug("executors", prepared.plan.scenario.executor).outlives
    if prepared.plan.scenario.until and outlives:
        listener.note(f"a rule ends the repetitions: each  bench collect {run_id}  looks, and hands over the next ones")
    for line in prepared.notes:
        listener.note(f"note: {line}")
    if outlives:
        return SubmittedRun(run_id, trials, under_way=execution.hand_over(workspace, prepared, ledger))
    if carrier := batch.carrier(prepared, ledger.folder):
        return SubmittedRun(run_id, trials, job=batch.carry(workspace, ledger, carrier))
    return SubmittedRun(run_id, trials, pid=execution.start_in_background(workspace, ledger))


@dataclass(frozen=True)
class OnBehalf:
    """For whom a server or an agent starts a run."""

    submitter: str = ""
    budget: Budget | None = None
    """A budget in addition to the limits of the scenario; None: only the scenario limits the run."""
    scheduled: ScheduledRun | None = None
    """The slot of the schedule that requires this run."""


def opened(
    workspace: WorkspaceFolder,
    prepared: PreparedRun,
    path: Path,
    listener: RunListener,
    *,
    new: bool | str = False,
    finished_too: bool = False,
) -> Ledger:
    """Open a run as `open_run` does; if its plan needs approval, notify those who subscribed to that."""
    try:
        return open_run(workspace, prepared, path, listener.note, new=new, finished_too=finished_too)
    except NeedsApprovalError as error:
        from benchhouse.automation.notices import NoticeEvent, notify

        scenario = prepared.plan.scenario.scenario
        sentence = f"{scenario}: {error.message}; {error.hint}"
        notify(workspace, NoticeEvent("approval", f"plan {error.plan_digest[:12]}", sentence, scenario), listener.note)
        raise


def submit_new(
    workspace: WorkspaceFolder,
    source: Source,
    where: PlaceKeywords,
    listener: RunListener,
    behalf: OnBehalf,
    *,
    new: bool | str,
) -> SubmittedRun:
    """Start a run in the background. An unfinished run of the same plan is continued, unless `new`, which may be an
    id."""
    if isinstance(new, str):
        return submit_as(workspace, new, source, where, listener, behalf)
    prepared, path = prepare_source(workspace, source, where)
    prepared = replace(prepared, **vars(behalf))
    return submit(workspace, prepared, opened(workspace, prepared, path, listener, new=new), listener)


def submit_as(
    workspace: WorkspaceFolder,
    run_id: str,
    source: Source,
    where: PlaceKeywords,
    listener: RunListener,
    behalf: OnBehalf,
) -> SubmittedRun:
    """Start a new run with this id in the background. If it exists, an earlier, killed caller requested it: it is
    started if it never was, and left alone otherwise."""
    ledger = Ledger(workspace.run(run_id))
    if ledger.folder.record.is_file():
        if not _begun(ledger):
            ledger, prepared = resume_run(workspace, run_id)
    else:
        prepared, path = prepare_source(workspace, source, where)
        prepared = replace(prepared, **vars(behalf))
        ledger = opened(workspace, prepared, path, listener, new=run_id)
    if not _begun(ledger):
        try:
            return submit(workspace, prepared, ledger, listener)
        except BenchError:
            if not _begun(ledger):  # otherwise another process was quicker
                raise
    return SubmittedRun(run_id, ledger.record.trials, pid=ledger.owner() or None)


def _begun(ledger: Ledger) -> bool:
    return ledger.owner() is not None or any(True for _ in ledger.events())


def keeper() -> Keep:
    """Return the function that keeps servers of a run alive. It is imported only if a run has servers."""
    from benchhouse.worker.service_supervisor import keep

    return keep


def _collect(workspace: WorkspaceFolder, run_id: str, listener: RunListener) -> CollectionReport:
    """Collect a run, and note every sealed trial that could not be collected."""
    collected = collect(workspace, run_id)
    if collected.unread_events:
        events = f"{collected.unread_events} event{'' if collected.unread_events == 1 else 's'}"
        listener.note(f"{run_id}: {events} of a newer version not read; use that version to see them")
    for line in collected.skipped:
        listener.note(f"not collected: {line}")
    if collected.trials:
        try:
            _write_summary(workspace, run_id)
        except (BenchError, OSError) as error:  # the tables hold all of it
            listener.note(f"no summary.json: {error}")
    return collected


def _write_summary(workspace: WorkspaceFolder, run_id: str) -> None:
    """Write SCENARIO/RUN/summary.json from all that is collected so far, if the site profile asks for it."""
    folder = site_folder(places.site(workspace, Ledger(workspace.run(run_id)).record.site), "metrics")
    if folder is None:
        return
    from benchhouse.results.experiment_summary import experiment_summary

    if summary := experiment_summary(workspace, run_id):
        path = workspace.root / folder / summary.scenario / run_id / "summary.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_model(path, summary)


def listener_of(progress: bool | RunListener) -> RunListener:
    """Return the listener for `progress`: True shows progress on the terminal or in the notebook, False shows
    nothing."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return QUIET
    from benchhouse.report.notebook_progress import NotebookProgress, in_notebook
    from benchhouse.report.terminal.progress import RunProgress

    return NotebookProgress() if in_notebook() else RunProgress()
