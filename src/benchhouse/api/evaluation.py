"""Plan and run an evaluation: registered benchmarks as one plan, one run after the other."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from benchhouse.api import execution
from benchhouse.api.run import Run
from benchhouse.evidence.writing import now
from benchhouse.nexus import packages
from benchhouse.nexus.changes import refuse_own_rules
from benchhouse.nexus.evaluation import BenchmarkSelection, EvaluationPlan, EvaluationStep, plan_evaluation, refuse_over
from benchhouse.nexus.evaluation_ledger import (
    EvaluationLedger,
    EvaluationRecord,
    PlannedRun,
    RunLine,
    Used,
    planned_run,
)
from benchhouse.runs.allowance import held_to
from benchhouse.runs.budget import Spent, most_used
from benchhouse.runs.ledger import Ledger, new_run_id
from benchhouse.runs.preparation import Where, prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.records import resume_run
from benchhouse.runs.trust_file import current_submitter, require
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.resources import Budget

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.layout import WorkspaceFolder


class EvaluateKeywords(TypedDict, total=False):
    """Which benchmarks to run (exactly one of the first four fields), where, and within what budget."""

    all: bool
    """Every benchmark of the nexus that can be run."""
    package: str | None
    """The benchmarks of this package."""
    model: str | None
    """The benchmarks of this model, named by its id or folder."""
    changed_since: str | None
    """Benchmarks that changed since the checkout branched off this commit, branch, or tag, with all that use them."""
    nexus: str | os.PathLike[str] | None
    """Folder with packages/; by default $BENCH_NEXUS, otherwise the nearest one at or above the workspace."""
    executor: str | None
    """Executor of the jobs, overriding the scenarios."""
    runtime: str | None
    """Runtime of the jobs, overriding the scenarios."""
    site: str | None
    """A site profile, by name or file."""
    budget: Budget | None
    """What all runs together may use."""
    again: bool
    """Also measure what an earlier run measured under the same conditions."""


State = Literal["planned", "running", "interrupted", "ended"]


@dataclass(frozen=True)
class EvaluatedRun:
    """The state of one benchmark of an evaluation."""

    benchmark: str
    run_id: str
    """Empty if the run was not started."""
    outcomes: dict[str, int]
    state: Literal["waiting", "begun", "complete", "incomplete", "refused", "not run"]
    why: str = ""
    """Why the run is not complete."""
    next: str = ""
    """What to do about it."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation: its plan, and the state of each run, in the order of the plan."""

    plan: EvaluationPlan
    runs: list[EvaluatedRun] = field(default_factory=list)
    evaluation_id: str = ""
    """Empty if the evaluation was only planned."""
    submitter: str = ""
    """Who requested the evaluation."""
    asked: str = ""
    """The request, as options of `bench evaluate`."""
    created: str = ""
    state: State = "planned"
    """planned: nothing was started yet. interrupted: no process is working on it, and some of its runs are
    unfinished."""

    @property
    def unfinished(self) -> bool:
        """Whether a run of this evaluation still has to be done or repeated."""
        return any(run.state != "complete" for run in self.runs)

    @property
    def exit_code(self) -> Exit:
        """The exit code of `bench evaluate`: 1 if a trial failed or was not run, 2 if something can't be planned."""
        failed = any(run.state != "complete" or set(run.outcomes) - {"succeeded"} for run in self.runs)
        broken = self.plan.count("broken") or any(run.state == "refused" for run in self.runs)
        return Exit.BAD_INPUT if broken else Exit.TRIAL_FAILED if failed else Exit.GOOD


def plan(
    workspace: "Workspace", keywords: EvaluateKeywords, by: str = ""
) -> tuple[EvaluationPlan, list[EvaluationStep]]:
    """Return what will be run and what is left out. Raises if it exceeds the budget or `by` is not an admin."""
    folder = workspace.folder
    require(folder, "admin", "evaluate", by)
    given = keywords.get("nexus")
    nexus = packages.load(folder, Path(given) if given else None)
    wanted = _wanted(keywords)
    if wanted.changed_since and folder.trusted.is_file():
        refuse_own_rules(nexus.root, wanted.changed_since, folder.trusted)
    planned, steps = plan_evaluation(folder, nexus, wanted, _where(keywords), again=keywords.get("again", False))
    if budget := keywords.get("budget"):
        refuse_over(planned, budget)
    return planned, steps


def create(
    workspace: "Workspace", keywords: EvaluateKeywords, *, evaluation_id: str = "", by: str = ""
) -> EvaluationLedger:
    """Plan an evaluation and record it without starting anything. If the id exists already, return that evaluation."""
    known = EvaluationLedger(workspace.folder.evaluation(evaluation_id)) if evaluation_id else None
    if known and known.exists:
        return known
    planned, steps = plan(workspace, keywords, by)
    where = _where(keywords)
    record = EvaluationRecord(
        evaluation_id=evaluation_id or new_run_id(),
        created=now(),
        submitter=by or current_submitter(),
        asked=_options(keywords),
        executor=where.executor,
        runtime=where.runtime,
        site=where.site,
        budget=keywords.get("budget"),
        plan=planned,
        runs=[planned_run(step) for step in steps],
    )
    return EvaluationLedger.create(workspace.folder, record)


def carry_out(
    workspace: "Workspace",
    ledger: EvaluationLedger,
    listener: execution.RunListener,
    each: Callable[[Run], None] = lambda run: None,
) -> Evaluation:
    """Do the missing runs one after the other; a failing run does not stop the others.

    Raises BenchError if the person who requested the evaluation is no longer an admin.
    """
    record = ledger.record
    require(workspace.folder, "admin", "evaluate", record.submitter)
    ledger.own()
    try:
        lines = ledger.lines()
        purse = _SharedBudget(record.budget, {number: line.used for number, line in lines.items()})
        session = _EvaluationSession(workspace, ledger, listener, each, purse)
        for number, planned in enumerate(record.runs):
            before = lines.get(number)
            if before is None or before.state != "complete":
                session.carry_out(number, planned, before)
    finally:
        ledger.release()
    return standing(ledger)


def in_background(workspace: "WorkspaceFolder", ledger: EvaluationLedger) -> None:
    """Continue the evaluation in another process."""
    words, before = ["evaluate", "--resume", ledger.folder.evaluation_id], ledger.lines()
    try:
        execution.start_background_bench(workspace, words, ledger.folder.log, ledger.owner)
    except BenchError:
        if ledger.lines() == before:  # otherwise it ended before this check, and its ledger records how
            raise


def standing(ledger: EvaluationLedger) -> Evaluation:
    """Return the state of an evaluation, from its files."""
    record, alive, lines = ledger.record, ledger.owner() is not None, ledger.lines()
    runs = [_stands(planned, lines.get(number)) for number, planned in enumerate(record.runs)]
    over = all(run.state not in ("waiting", "begun") for run in runs)
    state: State = "running" if alive else "ended" if over else "interrupted" if ledger.begun else "planned"
    return Evaluation(
        record.plan, runs, record.evaluation_id, record.submitter, record.asked, record.created, state
    )  # fmt: skip


def _stands(planned: PlannedRun, line: RunLine | None) -> EvaluatedRun:
    if line is None:
        return EvaluatedRun(planned.benchmark, "", {}, "waiting")
    return EvaluatedRun(planned.benchmark, line.run_id, line.outcomes, line.state, line.why, line.next)


def _wanted(keywords: EvaluateKeywords) -> BenchmarkSelection:
    return BenchmarkSelection(
        keywords.get("all", False), keywords.get("package"), keywords.get("model"), keywords.get("changed_since")
    )


def _where(keywords: EvaluateKeywords) -> Where:
    return Where(keywords.get("executor"), keywords.get("runtime"), keywords.get("site"))


def _options(keywords: EvaluateKeywords) -> str:
    wanted = _wanted(keywords)
    options = {"--package": wanted.package, "--model": wanted.model, "--changed-since": wanted.changed_since}
    words = [f"{name} {value}" for name, value in options.items() if value is not None]
    return " ".join([*(["--all"] if wanted.all else words), *(["--again"] if keywords.get("again") else [])])


@dataclass
class _SharedBudget:
    """The budget that all runs share, and what they used of it."""

    budget: Budget | None
    used: dict[int, Used]
    """Resources that each run used, in all sessions."""
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._wall_before = sum(item.wall for item in self.used.values())  # runs of earlier sessions only

    def left(self, number: int) -> Budget | None:
        """Return what is left for a run, including what it used before; None without a budget. Raises if a part is
        spent."""
        if self.budget is None:
            return None
        others = [item for other, item in self.used.items() if other != number]
        used = {name: sum(getattr(item, name) for item in others) for name in Used.model_fields}
        used["wall"] = self._wall_before + time.monotonic() - self.started
        left = {name: value - used[name] for name, value in self.budget.model_dump().items() if value is not None}
        if gone := [name for name, value in left.items() if value <= 0]:
            raise _SpentError(
                f"the budget of the evaluation is spent: {', '.join(gone)}", "go on: bench evaluate again"
            )
        return Budget.model_validate(left)


class _SpentError(BenchError):
    """Nothing is left for another run."""


@dataclass(frozen=True)
class _EvaluationSession:
    """Does one run after the other."""

    workspace: "Workspace"
    ledger: EvaluationLedger
    listener: execution.RunListener
    each: Callable[[Run], None]
    purse: _SharedBudget

    def carry_out(self, number: int, planned: PlannedRun, before: RunLine | None) -> None:
        """Do one run and record how it ended. A run that can't be started is recorded too."""
        folder, line = self.workspace.folder, before
        known, used = (before.run_id, before.used) if before else ("", Used())
        known = known if known and folder.run(known).record.is_file() else ""
        try:
            left = self.purse.left(number)
            line = self.ledger.begin(number, before)
            ledger, prepared = self._opened(planned, line.run_id, left)
            summary = execution.carry_out(folder, ledger, prepared, listener=self.listener)
        except _SpentError as error:
            left_out = RunLine(
                time=now(), number=number, state="not run", run_id=known, why=error.message, next=error.hint, used=used
            )
            self.ledger.write(left_out)
            return
        except BenchError as error:
            self.listener.note(f"{planned.benchmark}: {error.message}")
            run_id = line.run_id if line and folder.run(line.run_id).record.is_file() else ""
            refused = RunLine(
                time=now(), number=number, state="refused", run_id=run_id, why=error.message, next=error.hint, used=used
            )
            self.ledger.write(refused)
            return
        used = _used(ledger, prepared)
        self.purse.used[number] = used
        self.each(Run(self.workspace, line.run_id, summary))
        ended = RunLine(
            time=now(), number=number, state="complete", run_id=line.run_id, outcomes=dict(summary.outcomes), used=used
        )
        if not summary.complete:
            then = f"bench run --resume {line.run_id}"
            ended = ended.model_copy(update={"state": "incomplete", "why": summary.stopped, "next": then})
        self.ledger.write(ended)

    def _opened(self, planned: PlannedRun, run_id: str, left: Budget | None) -> tuple[Ledger, PreparedRun]:
        """Create the run under this id, or resume it if it exists."""
        folder, record = self.workspace.folder, self.ledger.record
        if folder.run(run_id).record.is_file():
            return resume_run(folder, run_id)
        home, file = Path(planned.home), Path(planned.file)
        prepared = prepare_text(folder, planned.scenario, planned.file, home, record.where)
        if prepared.plan.digest != planned.plan_digest:
            raise BenchError(
                f"it was planned as {planned.plan_digest[:12]}, and now plans as {prepared.plan.digest[:12]}",
                "the experiment's package or the environment has changed: evaluate again",
            )
        prepared = replace(held_to(prepared, left) if left else prepared, submitter=record.submitter)
        return execution.opened(folder, prepared, file, self.listener, new=run_id), prepared


def _used(ledger: Ledger, prepared: PreparedRun) -> Used:
    """Return what a run used in all its sessions."""
    spent = Spent.recall(ledger.events(), *most_used(prepared.plan), now())
    price = prepared.plan.scenario.price_per_hour or 0.0
    return Used(
        trials=spent.trials, wall=spent.wall_s, cpu=spent.cpu_s, cost=spent.node_s / 3600 * price,
        node_hours=spent.node_s / 3600, gpu_hours=spent.gpu_s / 3600,
    )  # fmt: skip
