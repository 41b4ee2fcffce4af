"""What may be started without approval: a plan within the budget that a server's owner set for each run."""

from dataclasses import dataclass, replace
from typing import Literal

from benchhouse.runs.estimate import estimate
from benchhouse.runs.preparation import Prepared
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quantities import show_seconds
from benchhouse.schema.resources import Budget


@dataclass(frozen=True)
class Excess:
    """One thing of which a plan asks for more than a budget has; times in seconds."""

    what: Literal["trials", "wall", "cost"]
    asked: float | None
    """None: it can't be known."""
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


class NeedsApprovalError(BenchError):
    """A plan that asks for more than may be started without approval."""

    def __init__(self, plan_digest: str, over: list[Excess]) -> None:
        super().__init__(
            f"plan {plan_digest[:12]} needs approval: {'; '.join(map(str, over))}",
            "somebody with the role approve can start it; or ask for less: fewer points or repetitions, "
            "or a smaller `budget` in the scenario",
            Exit.NEEDS_APPROVAL,
        )
        self.plan_digest, self.over = plan_digest, over


def within(workspace: WorkspaceFolder, prepared: Prepared, budget: Budget) -> Prepared:
    """The same, held to a budget; raises NeedsApprovalError where the whole run asks for more.

    What can't be known before, such as CPU time, or how long something takes that never ran here, ends the run when
    it is spent.
    """
    plan, own = prepared.plan, prepared.plan.scenario.budget
    guess = estimate(workspace, plan, plan.scenario.parallel)
    over = []
    if budget.trials is not None and (trials := min(plan.trial_count, own.trials or plan.trial_count)) > budget.trials:
        over.append(Excess("trials", trials, budget.trials))
    if budget.wall is not None and guess.seconds is not None:
        wall = min(guess.seconds, own.wall or guess.seconds)
        over += [Excess("wall", wall, budget.wall)] if wall > budget.wall else []
    if budget.cost is not None and plan.scenario.price_per_hour is None:
        over.append(Excess("cost", None, budget.cost))
    elif budget.cost is not None and guess.cost is not None:
        cost = min(guess.cost, own.cost or guess.cost)
        over += [Excess("cost", cost, budget.cost)] if cost > budget.cost else []
    if over:
        raise NeedsApprovalError(plan.digest, over)
    return held_to(prepared, budget)


def held_to(prepared: Prepared, budget: Budget) -> Prepared:
    """The same with the smaller of both budgets; its plan keeps its digest."""
    scenario = prepared.plan.scenario
    limits = [{key: value for key, value in item.model_dump().items() if value} for item in (scenario.budget, budget)]
    both = limits[0] | {key: min(value, limits[0].get(key, value)) for key, value in limits[1].items()}
    scenario = scenario.model_copy(update={"budget": Budget.model_validate(both)})
    return replace(prepared, plan=replace(prepared.plan, scenario=scenario), budget=budget)
