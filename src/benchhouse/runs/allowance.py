"""The part of a plan that exceeds a budget, and a plan that is held to one."""

from dataclasses import dataclass, replace
from typing import Literal

from benchhouse.runs.estimate import estimate
from benchhouse.runs.prepared_run import PreparedRun
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quantities import show_seconds
from benchhouse.schema.resources import Budget


@dataclass(frozen=True)
class Excess:
    """One limit of a budget that a plan exceeds; times in seconds."""

    what: Literal["trials", "wall", "cost", "node_hours", "gpu_hours"]
    asked: float | None
    """The amount that the plan needs; None if it can't be known."""
    allowed: float

    def __str__(self) -> str:
        if self.asked is None:
            why = "not known, as the scenario has no price_per_hour"
            return f"{self.what}: {why}; {self._show(self.allowed)} is allowed"
        asked, more, allowed = map(self._show, (self.asked, self.asked - self.allowed, self.allowed))
        about = "" if self.what == "trials" else "about "
        return f"{self.what}: {about}{asked}, {more} more than the {allowed} allowed"

    def _show(self, value: float) -> str:
        return show_seconds(value) if self.what == "wall" else f"{value:g}"


def excess(workspace: WorkspaceFolder, prepared: PreparedRun, budget: Budget, *, guess: bool = True) -> list[Excess]:
    """Return what the whole run needs beyond a budget. Time and money are a `guess` from earlier trials.

    Needs that can't be known in advance, such as CPU time, or the duration of something that never ran here, end the
    run when the budget is spent.
    """
    plan, own = prepared.plan, prepared.plan.scenario.budget
    over = []
    if budget.trials is not None and (trials := min(plan.trial_count, own.trials or plan.trial_count)) > budget.trials:
        over.append(Excess("trials", trials, budget.trials))
    if budget.cost is not None and plan.scenario.price_per_hour is None:
        over.append(Excess("cost", None, budget.cost))
    limited = any(getattr(budget, what) is not None for what in ("wall", "cost", "node_hours", "gpu_hours"))
    if not (guess and limited):
        return over
    guessed = estimate(workspace, plan, plan.scenario.parallel)
    asked = {
        "wall": guessed.seconds, "cost": guessed.cost,
        "node_hours": guessed.node_hours, "gpu_hours": guessed.gpu_hours,
    }  # fmt: skip
    for what, value in asked.items():
        allowed, limit = getattr(budget, what), getattr(own, what)
        if allowed is not None and value is not None and (most := min(value, limit or value)) > allowed:
            over.append(Excess(what, most, allowed))  # type: ignore[arg-type]  # keys of `asked`
    return over


def held_to(prepared: PreparedRun, budget: Budget) -> PreparedRun:
    """Return the run with the smaller of both budgets; its plan keeps its digest."""
    scenario = prepared.plan.scenario
    scenario = scenario.model_copy(update={"budget": smaller(scenario.budget, budget)})
    return replace(prepared, plan=replace(prepared.plan, scenario=scenario), budget=budget)


def smaller(one: Budget, other: Budget | None) -> Budget:
    """Return a budget with the lower of each limit."""
    first, second = (item.model_dump(exclude_none=True) if item else {} for item in (one, other))
    both = first | {key: min(value, first.get(key, value)) for key, value in second.items()}
    return Budget.model_validate(both)
