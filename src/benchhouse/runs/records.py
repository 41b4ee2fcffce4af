"""The ledger entry of a run: a new one, the unfinished one of the same plan, or an earlier one to resume."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchhouse.catalog.entries import plug
from benchhouse.documents.problems import ProblemsError
from benchhouse.evidence.writing import now, write_text
from benchhouse.plan.axes import RESOURCES
from benchhouse.plan.dataset import missing_dataset
from benchhouse.plan.expand import Plan
from benchhouse.runs import estimate, fetch
from benchhouse.runs.allowance import held_to
from benchhouse.runs.approval import admit, used_up
from benchhouse.runs.approval_files import copy_text
from benchhouse.runs.checkout import checkout
from benchhouse.runs.conditions import changed_conditions, conditions
from benchhouse.runs.executor_choice import Where, no_scheduler
from benchhouse.runs.external_servers import ExternalServers
from benchhouse.runs.ledger import Ledger, RunRecord, list_runs, new_run_id
from benchhouse.runs.preparation import prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.selection import find_run
from benchhouse.runs.trust_file import current_submitter
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import RunFolder, WorkspaceFolder
from benchhouse.schema.protocols import Assignment, Executor

Say = Callable[[str], None]


def open_run(
    workspace: WorkspaceFolder,
    prepared: PreparedRun,
    path: Path,
    say: Say,
    *,
    new: bool | str = False,
    finished_too: bool = False,
) -> Ledger:
    """Return the unfinished run of the same plan and conditions if there is one and `new` is not set; otherwise a new
    run, named `new` if that is a text.

    With `finished_too` (to run failed trials again) code that has changed in the meantime is allowed and reported.
    """
    if prepared.plan.code is None:
        raise BenchError(prepared.notes[0], "install a package that offers it; see: bench list experiments")
    if warning := check_packages(workspace, prepared):
        say(f"warning: {warning}")
    problems = no_scheduler(prepared.file, prepared.only_slurm)
    if problems := [*problems, *missing_dataset(prepared.file, prepared.plan.folder)]:
        raise ProblemsError(problems)
    if prepared.contract:
        from benchhouse.runs.contracts import check_source

        if doubt := check_source(prepared.contract, checkout(prepared.home)):
            say(f"warning: {doubt}")
    open_executor(prepared, workspace.run("RUN"), say=say).close()
    ExternalServers(prepared, workspace.run("RUN")).find()
    unfinished = None if new else _last_of_plan(workspace, prepared, finished_too)
    if warning := _check_ready(workspace, prepared, unfinished):
        say(f"warning: {warning}")
    if unfinished is None:
        return create_run(workspace, prepared, path, new if isinstance(new, str) else None)
    if (owner := unfinished.owner()) is not None:
        raise unfinished.busy(owner)
    changed = changed_conditions(unfinished, prepared)
    if changed and not finished_too:
        say(f"a new run: since {unfinished.folder.run_id} there is another {' and '.join(changed)}")
        return create_run(workspace, prepared, path)
    admit(workspace, prepared, unfinished)
    say(f"resuming run {unfinished.folder.run_id} (bench run --new starts afresh)")
    # Parts that the plan does not cover, such as the budget, may have been edited.
    write_text(unfinished.folder.scenario, prepared.file.text)
    return unfinished


def check_packages(workspace: WorkspaceFolder, prepared: PreparedRun) -> str:
    """Return a warning about the packages of a run, or ''. Raise BenchError if trusted.yaml forbids them."""
    if not workspace.trusted.is_file():
        return ""
    from benchhouse.runs.package_gate import check  # few workspaces have a policy

    return check(workspace, prepared)


def _check_ready(workspace: WorkspaceFolder, prepared: PreparedRun, unfinished: Ledger | None) -> str:
    """Return a warning or an empty text. Raise BenchError if a run could not be finished.

    Jobs elsewhere must find what they need, and results must have room. Finished trials of `unfinished`, the run that
    would be resumed, need no more room.
    """
    if prepared.plan.scenario.executor != "local":
        _require_shared(workspace, prepared)
        fetch.require(workspace, prepared)
    ended = sum(event.event == "ended" for event in unfinished.events()) if unfinished else 0
    return estimate.check_room(workspace, prepared, max(0, prepared.plan.trial_count - ended))


def _require_shared(workspace: WorkspaceFolder, prepared: PreparedRun) -> None:
    shared = [Path(folder) for folder in prepared.site.folders.shared if "$" not in folder]
    home = workspace.root.resolve()
    if shared and not any(folder.resolve() in (home, *home.parents) for folder in shared):
        raise BenchError(
            f"the workspace {home} is not seen by the nodes of site '{prepared.site.site}'",
            f"use one below {', '.join(map(str, shared))}: bench -C DIR ...",
        )


def open_executor(
    prepared: PreparedRun,
    run: RunFolder,
    parallel: int | None = None,
    *,
    check: bool = True,
    say: Say = lambda text: None,
) -> Executor:
    """Return the scenario's executor. Raise BenchError at once if it can't provide what a trial requests."""
    scenario = prepared.plan.scenario.model_copy(update={"limits": prepared.plan.limits})  # with its benchmark's
    if parallel:
        scenario = scenario.model_copy(update={"parallel": parallel})
    assignment = Assignment(scenario.parallel, scenario, prepared.site, run, say)
    executor: Executor = plug("executors", scenario.executor)(assignment)
    try:
        if check:
            check_resources(executor, prepared.plan)
    except BenchError:
        executor.close()
        raise
    return executor


def check_resources(executor: Executor, plan: Plan) -> None:
    """Raise BenchError if the executor can't provide what a trial requests, with the value if resources vary."""
    for resources in plan.all_resources:
        try:
            executor.check(resources)
        except BenchError as error:
            varied = [axis for axis in plan.axes if axis.startswith(RESOURCES)]
            values = ", ".join(f"{axis}={getattr(resources, axis.removeprefix(RESOURCES))}" for axis in varied)
            if not values:
                raise
            raise BenchError(f"at {values}: {error.message}", error.hint, error.exit_code) from error


def create_run(workspace: WorkspaceFolder, prepared: PreparedRun, path: Path, run_id: str | None = None) -> Ledger:
    """Create a run within what its submitter may start, or by an approval, which only this run may use.

    A scenario that was made in Python has no file: the run's own copy replaces it.
    """
    admitted = admit(workspace, prepared)
    plan, run_id, approved = prepared.plan, run_id or new_run_id((list_runs(workspace) or [""])[-1]), admitted.approval
    scenario_file = path.absolute() if path.is_file() else workspace.run(run_id).scenario
    record = RunRecord(
        run_id=run_id,
        scenario=plan.scenario.scenario,
        scenario_file=str(scenario_file),
        home=str(prepared.home.absolute()),
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
        submitter=prepared.submitter or current_submitter(),
        budget=admitted.budget if approved else prepared.budget,
        approval=approved.approval.request.name if approved else "",
        scheduled=prepared.scheduled,
    )
    texts = {"scenario": prepared.file.text}
    texts |= {"benchmark": prepared.registered.document.text} if prepared.registered else {}
    texts |= {"contract": prepared.contract.document.text} if prepared.contract else {}
    texts |= {"approval": copy_text(approved)} if approved else {}
    ledger = Ledger.create(workspace, record, texts)
    if approved and (error := used_up(workspace, approved, run_id)):  # another run used it at this very moment
        shutil.rmtree(ledger.folder.path)
        raise error
    return ledger


def resume_run(workspace: WorkspaceFolder, token: str, elsewhere: Where | None = None) -> tuple[Ledger, PreparedRun]:
    """Return an earlier run and its plan, read from the ledger alone; what is missing may run `elsewhere`.

    The plan does not cover where it runs, so its digest stays; each trial's evidence names the executor that ran it.
    """
    ledger = Ledger(workspace.run(find_run(workspace, token)))
    record = ledger.record
    text = ledger.folder.scenario.read_text(encoding="utf-8")
    wanted = elsewhere or Where()
    if wanted.executor not in (None, record.executor) and ledger.goes_on():
        raise BenchError(
            f"jobs of run {record.run_id} may still be under way on {record.executor}",
            f"end them first: bench stop {record.run_id}",
        )
    contract = ledger.folder.contract if ledger.folder.contract.is_file() else None
    where = Where(wanted.executor or record.executor, record.runtime, wanted.site or record.site, contract)
    prepared = prepare_text(workspace, text, str(ledger.folder.scenario), record.folder, where)
    if prepared.plan.digest != record.plan_digest:
        raise BenchError(
            f"run {record.run_id} was planned as {record.plan_digest[:12]}, "
            f"its scenario now plans as {prepared.plan.digest[:12]}",
            "the experiment's package or the environment has changed; start afresh: bench run --new",
        )
    if where.executor != record.executor:
        prepared.notes.append(f"this run began on {record.executor}; what is missing runs on {where.executor}")
    prepared.notes.extend(
        f"another {name} than when this run began: its numbers mix the two (bench run --new keeps them apart)"
        for name in changed_conditions(ledger, prepared)
    )
    return ledger, held_to(prepared, record.budget) if record.budget else prepared


def _last_of_plan(workspace: WorkspaceFolder, prepared: PreparedRun, finished_too: bool) -> Ledger | None:
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
