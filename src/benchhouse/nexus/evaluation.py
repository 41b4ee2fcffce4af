"""The plan of an evaluation: every registered benchmark that is selected or touched by a change.

Points that an earlier run measured under the same conditions are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchhouse.catalog.listing import listed_once
from benchhouse.catalog.nexus import Nexus
from benchhouse.nexus.changes import changed_files, touched
from benchhouse.nexus.packages import PackageBenchmark, runnable
from benchhouse.plan.remaining_points import text_without
from benchhouse.runs.estimate import PlanEstimate, estimate
from benchhouse.runs.preparation import Where, prepare_all, prepare_text
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.runs.reuse import EarlierRuns
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quantities import show_seconds
from benchhouse.schema.resources import Budget
from benchhouse.sites import places


@dataclass(frozen=True)
class BenchmarkSelection:
    """A selection of benchmarks: all, those of one package or one model, or those changed since a commit."""

    all: bool = False
    package: str | None = None
    model: str | None = None
    changed_since: str | None = None

    def __post_init__(self) -> None:
        given = [self.all, self.package is not None, self.model is not None, self.changed_since is not None]
        if sum(given) != 1:
            raise BenchError("say which benchmarks, once", "--all, --package NAME, --model ID or --changed-since REF")


@dataclass(frozen=True)
class EvaluatedBenchmark:
    """A benchmark of an evaluation; a space of several experiments has one entry per experiment."""

    benchmark: str
    """`package/name`, or `package/model/name`."""
    scenario: str
    """The scenario under which its results are filed."""
    file: str
    why: list[str]
    """Changed files that touch it; empty if it was selected by name."""
    state: Literal["to run", "reused", "broken"]
    points: int
    """Number of points to be run now."""
    reused: int
    """Number of points that an earlier run measured under the same conditions."""
    reused_runs: list[str]
    """Runs that have those points."""
    trials: int
    seconds: float | None
    """Estimated seconds of all trials to be run, from history; None if there is no history."""
    cost: float | None
    plan_digest: str
    error: str = ""
    """Why it can't be planned; empty if it can."""


@dataclass(frozen=True)
class EvaluationPlan:
    """The benchmarks that an evaluation would run, and those that it leaves out."""

    benchmarks: list[EvaluatedBenchmark]
    changed: list[str]
    """Files that changed, if the selection is by change."""
    trials: int
    seconds: float | None
    """Sum of the estimates that history allows; None if it allows none."""
    cost: float | None
    plan_digest: str
    """Digest of the plans of all benchmarks to be run."""

    def count(self, state: str) -> int:
        """Return the number of benchmarks in this state."""
        return sum(item.state == state for item in self.benchmarks)


@dataclass(frozen=True)
class EvaluationStep:
    """One run of an evaluation."""

    benchmark: EvaluatedBenchmark
    prepared: PreparedRun
    path: Path


def plan_evaluation(
    workspace: WorkspaceFolder, nexus: Nexus, wanted: BenchmarkSelection, where: Where, *, again: bool = False
) -> tuple[EvaluationPlan, list[EvaluationStep]]:
    """Return the plan, and its runs in order. `again` reuses nothing. Broken benchmarks don't affect the others."""
    changed = changed_files(nexus.root, wanted.changed_since) if wanted.changed_since is not None else []
    chosen = _chosen(nexus, wanted, changed)
    planner = _Planner(workspace, where, None if again else EarlierRuns(workspace))
    steps, benchmarks = list[EvaluationStep](), _unreadable(nexus, wanted, chosen, changed)
    with listed_once(places.cache()):
        for item, why in chosen:
            try:
                planned = planner.plan(item, why)
            except BenchError as error:
                benchmarks.append(_broken(item.benchmark, item.file, why, error))
                continue
            benchmarks += [step.benchmark for step in planned]
            steps += [step for step in planned if step.benchmark.state == "to run"]
    asked = [step.benchmark for step in steps]
    seconds = [item.seconds for item in asked if item.seconds is not None]
    costs = [item.cost for item in asked if item.cost is not None]
    whole = digest([[item.benchmark, item.plan_digest] for item in asked])
    trials = sum(item.trials for item in asked)
    return EvaluationPlan(
        benchmarks, changed, trials, sum(seconds) if seconds else None, sum(costs) if costs else None, whole
    ), steps


def refuse_over(plan: EvaluationPlan, budget: Budget) -> None:
    """Raise BenchError if the plan exceeds the budget, as far as that is known in advance."""
    over = []
    if budget.trials is not None and plan.trials > budget.trials:
        over.append(f"{plan.trials} trials, {budget.trials} are allowed")
    if budget.wall is not None and plan.seconds is not None and plan.seconds > budget.wall:
        over.append(f"about {show_seconds(plan.seconds)}, {show_seconds(budget.wall)} is allowed")
    if budget.cost is not None and plan.cost is not None and plan.cost > budget.cost:
        over.append(f"a cost of about {plan.cost:g}, {budget.cost:g} is allowed")
    if over:
        raise BenchError(
            f"the evaluation asks for more than its budget: {'; '.join(over)}",
            "raise --budget, or evaluate less: --package NAME, --model ID",
            Exit.NEEDS_APPROVAL,
        )


def _chosen(
    nexus: Nexus, wanted: BenchmarkSelection, changed: Sequence[str]
) -> list[tuple[PackageBenchmark, list[str]]]:
    if wanted.changed_since is None:
        return [(item, []) for item in runnable(nexus, wanted.package, wanted.model)]
    reasons = touched(nexus, changed)
    if not reasons:
        return []
    return [(item, reasons[item.benchmark]) for item in runnable(nexus) if item.benchmark in reasons]


@dataclass(frozen=True)
class _Planner:
    """Planner of single benchmarks."""

    workspace: WorkspaceFolder
    where: Where
    earlier: EarlierRuns | None
    """Runs whose points may be reused; None reuses nothing."""

    def plan(self, item: PackageBenchmark, why: list[str]) -> list[EvaluationStep]:
        """Return a step for each of its experiments. Raise BenchError if one can't be planned."""
        prepared = prepare_all(self.workspace, Path(item.file), self.where)
        for each in prepared:
            if each.plan.code is None:
                raise BenchError(each.notes[0], "install a package that offers it; see: bench list experiments")
        return [self._step(item, why, each) for each in prepared]

    def _step(self, item: PackageBenchmark, why: list[str], prepared: PreparedRun) -> EvaluationStep:
        path = Path(item.file)
        measured = self.earlier.measured(prepared) if self.earlier else {}
        points = prepared.plan.points
        if len(measured) == points:
            return EvaluationStep(_row(item, why, prepared, measured, None), prepared, path)
        if measured and not prepared.plan.variants:  # `exclude` can't distinguish the points of versions
            left_out = [point for number, point in enumerate(prepared.plan.shown_points()) if number in measured]
            text = text_without(prepared.file, left_out)
            prepared = prepare_text(self.workspace, text, str(path), prepared.home, self.where)
        else:
            measured = {}
        guess = estimate(self.workspace, prepared.plan, prepared.plan.scenario.parallel)
        return EvaluationStep(_row(item, why, prepared, measured, guess), prepared, path)


def _row(
    item: PackageBenchmark,
    why: list[str],
    prepared: PreparedRun,
    measured: Mapping[int, str],
    guess: PlanEstimate | None,
) -> EvaluatedBenchmark:
    plan = prepared.plan
    return EvaluatedBenchmark(
        benchmark=item.benchmark,
        scenario=plan.scenario.scenario,
        file=item.file,
        why=why,
        state="to run" if guess else "reused",
        points=plan.points if guess else 0,
        reused=len(measured),
        reused_runs=sorted(set(measured.values())),
        trials=plan.trial_count if guess else 0,
        seconds=guess.seconds if guess else None,
        cost=guess.cost if guess else None,
        plan_digest=plan.digest,
    )


def _unreadable(
    nexus: Nexus,
    wanted: BenchmarkSelection,
    chosen: Sequence[tuple[PackageBenchmark, list[str]]],
    changed: Sequence[str],
) -> list[EvaluatedBenchmark]:
    """Return the unreadable files of the selected packages, whose benchmarks can't be known."""
    packages = {item.benchmark.partition("/")[0] for item, _ in chosen} | {wanted.package}
    packages |= {name.split("/")[1] for name in changed if name.count("/") > 1}
    return [
        _broken(item.origin, item.place, [], item.error)
        for item in nexus.broken
        if wanted.all or item.origin in packages
    ]


def _broken(benchmark: str, file: str, why: list[str], error: BenchError) -> EvaluatedBenchmark:
    return EvaluatedBenchmark(benchmark, "", file, why, "broken", 0, 0, [], 0, None, None, "", error=str(error))
