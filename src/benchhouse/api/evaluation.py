"""`ws.evaluate(...)`: registered benchmarks, all or what a change touches, as one plan within one budget."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from benchhouse.api import execution
from benchhouse.api.run import Run
from benchhouse.evidence.writing import now
from benchhouse.nexus import packages
from benchhouse.nexus.changes import refuse_own_rules
from benchhouse.nexus.evaluation import EvaluationPlan, Step, Wanted, plan_evaluation, refuse_over
from benchhouse.runs.allowance import held_to
from benchhouse.runs.budget import Spent, most_used
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Where
from benchhouse.runs.trusted import require
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.resources import Budget

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


class EvaluateKeywords(TypedDict, total=False):
    """Which benchmarks, by one of the first four, where, and within what."""

    all: bool
    """Every benchmark of the nexus that can be run."""
    package: str | None
    """Those of a package."""
    model: str | None
    """Those of a model, by its id or its folder."""
    changed_since: str | None
    """Those that differ from where the checkout left this commit, branch or tag, with all that use them."""
    nexus: str | os.PathLike[str] | None
    """Folder with packages/; by default $BENCH_NEXUS, else the nearest at or above the workspace."""
    executor: str | None
    """Where jobs go, whatever the scenarios say."""
    runtime: str | None
    """What jobs run inside, whatever the scenarios say."""
    site: str | None
    """A site profile, by name or file."""
    budget: Budget | None
    """What all runs together may use."""
    again: bool
    """Measure also what an earlier run measured under the same conditions."""
    dry_run: bool
    """Plan, and start nothing."""


@dataclass(frozen=True)
class EvaluatedRun:
    """How one benchmark of an evaluation ended."""

    benchmark: str
    run_id: str
    """Empty where it was not begun."""
    outcomes: dict[str, int]
    state: Literal["complete", "incomplete", "refused", "not run"]
    why: str = ""
    """Why it is not complete."""
    next: str = ""
    """What to do about it."""


@dataclass(frozen=True)
class Evaluation:
    """What was planned, and how each run ended, in the order of the plan."""

    plan: EvaluationPlan
    runs: list[EvaluatedRun] = field(default_factory=list)

    @property
    def exit_code(self) -> Exit:
        """What `bench evaluate` ends with: 1 where a trial failed or was not run, 2 for what can't be planned."""
        failed = any(run.state != "complete" or set(run.outcomes) - {"succeeded"} for run in self.runs)
        broken = self.plan.count("broken") or any(run.state == "refused" for run in self.runs)
        return Exit.BAD_INPUT if broken else Exit.TRIAL_FAILED if failed else Exit.GOOD


def evaluate(
    workspace: "Workspace", keywords: EvaluateKeywords, listener: execution.RunListener, each: Callable[[Run], None]
) -> Evaluation:
    """Plan, refuse what is over the budget, and run one benchmark after the other; one that fails stops no other."""
    folder = workspace.folder
    require(folder, "admin", "evaluate")
    wanted = Wanted(
        keywords.get("all", False), keywords.get("package"), keywords.get("model"), keywords.get("changed_since")
    )
    where = Where(keywords.get("executor"), keywords.get("runtime"), keywords.get("site"))
    given = keywords.get("nexus")
    nexus = packages.load(folder, Path(given) if given else None)
    if wanted.changed_since and folder.trusted.is_file():
        refuse_own_rules(nexus.root, wanted.changed_since, folder.trusted)
    plan, steps = plan_evaluation(folder, nexus, wanted, where, again=keywords.get("again", False))
    budget = keywords.get("budget")
    if budget:
        refuse_over(plan, budget)
    if keywords.get("dry_run", False):
        return Evaluation(plan)
    session = _Session(workspace, listener, each, _Purse(budget), keywords.get("again", False))
    return Evaluation(plan, [session.carry_out(step) for step in steps])


@dataclass
class _Purse:
    """What is left of the budget of all runs."""

    budget: Budget | None
    started: float = field(default_factory=time.monotonic)
    trials: int = 0
    cpu_s: float = 0.0
    cost: float = 0.0
    node_hours: float = 0.0
    gpu_hours: float = 0.0

    def left(self) -> Budget | None:
        """For the next run; raises BenchError where something is spent."""
        if self.budget is None:
            return None
        used = {
            "trials": self.trials, "cpu": self.cpu_s, "cost": self.cost, "wall": time.monotonic() - self.started,
            "node_hours": self.node_hours, "gpu_hours": self.gpu_hours,
        }  # fmt: skip
        left = {name: value - used[name] for name, value in self.budget.model_dump().items() if value is not None}
        if gone := [name for name, value in left.items() if value <= 0]:
            raise _SpentError(
                f"the budget of the evaluation is spent: {', '.join(gone)}", "go on: bench evaluate again"
            )
        return Budget.model_validate(left)

    def take(self, ledger: Ledger, step: Step) -> None:
        """What a run used that just ended."""
        spent = Spent.recall(ledger.events(), *most_used(step.prepared.plan), now())
        self.trials += spent.trials
        self.cpu_s += spent.cpu_s
        self.node_hours += spent.node_s / 3600
        self.gpu_hours += spent.gpu_s / 3600
        self.cost += spent.node_s / 3600 * (step.prepared.plan.scenario.price_per_hour or 0.0)


class _SpentError(BenchError):
    """Nothing is left for another run."""


@dataclass(frozen=True)
class _Session:
    """Carries out one run after the other."""

    workspace: "Workspace"
    listener: execution.RunListener
    each: Callable[[Run], None]
    purse: _Purse
    again: bool

    def carry_out(self, step: Step) -> EvaluatedRun:
        """How it ended; what can't be started is an answer, too."""
        name, run_id, folder = step.benchmark.benchmark, "", self.workspace.folder
        try:
            left = self.purse.left()
            prepared = held_to(step.prepared, left) if left else step.prepared
            ledger = execution.opened(folder, prepared, step.path, self.listener, new=self.again)
            run_id = ledger.folder.run_id
            summary = execution.carry_out(folder, ledger, prepared, listener=self.listener)
        except _SpentError as error:
            return EvaluatedRun(name, "", {}, "not run", error.message, error.hint)
        except BenchError as error:
            self.listener.note(f"{name}: {error.message}")
            return EvaluatedRun(name, run_id, {}, "refused", error.message, error.hint)
        self.purse.take(ledger, step)
        self.each(Run(self.workspace, run_id, summary))
        if summary.complete:
            return EvaluatedRun(name, run_id, dict(summary.outcomes), "complete")
        then = f"bench run --resume {run_id}"
        return EvaluatedRun(name, run_id, dict(summary.outcomes), "incomplete", summary.stopped, then)
