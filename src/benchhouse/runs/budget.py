"""Usage of a run so far, compared with its budget."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from benchhouse.plan.expand import Plan
from benchhouse.runs.ledger import RunEvent
from benchhouse.schema.resources import Budget


class Overspent(NamedTuple):
    what: Literal["trials", "wall", "cpu", "cost", "node_hours", "gpu_hours"]
    message: str


@dataclass
class Spent:
    """Usage of all sessions of a run together: the wall-clock budget, too, holds for the whole run."""

    trials: int = 0
    cpu_s: float = 0.0
    node_s: float = 0.0
    gpu_s: float = 0.0
    running_node_s: float = 0.0  # of trials that have not ended, which cost does not count
    running_gpu_s: float = 0.0
    wall_s: float = 0.0  # of earlier sessions

    @classmethod
    def recall(cls, events: Iterable[RunEvent], nodes: int, gpus: int, now: str) -> "Spent":
        """Return the usage by the ledger. Wall time runs until `now` for jobs that were submitted and left alone."""
        spent = cls()
        began = last = None
        left_alone = False
        for event in events:
            if event.event in ("started", "resumed", "submitted"):
                spent.wall_s += _between(began, last)
                began = event.time
            if event.event not in ("ended", "retry"):
                left_alone = event.event == "submitted"
            last = event.time
            if event.event == "ended":
                spent.trials += 1
                spent.add(event.cpu_s, event.duration_s, nodes, gpus)
        spent.wall_s += _between(began, now if left_alone else last)
        return spent

    def add(self, cpu_s: float | None, duration_s: float | None, nodes: int, gpus: int) -> None:
        self.cpu_s += cpu_s or 0.0
        self.node_s += (duration_s or 0.0) * nodes
        self.gpu_s += (duration_s or 0.0) * gpus

    def with_running(self, seconds: float, nodes: int, gpus: int) -> "Spent":
        """Return the usage including that of trials that have not ended."""
        return replace(self, running_node_s=seconds * nodes, running_gpu_s=seconds * gpus)

    def over(self, budget: Budget, price_per_hour: float | None, session_s: float, extra: int = 0) -> Overspent | None:
        """Return the first budget that is spent, or None; `extra` trials are about to be started."""
        if budget.trials is not None and self.trials + extra >= budget.trials:
            return Overspent("trials", f"the budget of {budget.trials} trials is spent")
        if budget.wall is not None and self.wall_s + session_s >= budget.wall:
            return Overspent("wall", f"the wall-clock budget of {budget.wall:g} s is spent")
        if budget.cpu is not None and self.cpu_s >= budget.cpu:
            return Overspent("cpu", f"the budget of {budget.cpu:g} s CPU time is spent")
        if budget.cost is not None and self.node_s / 3600 * (price_per_hour or 0.0) >= budget.cost:
            return Overspent("cost", f"the budget of {budget.cost:g} is spent")
        if budget.node_hours is not None and (self.node_s + self.running_node_s) / 3600 >= budget.node_hours:
            return Overspent("node_hours", f"the budget of {budget.node_hours:g} node-hours is spent")
        if budget.gpu_hours is not None and (self.gpu_s + self.running_gpu_s) / 3600 >= budget.gpu_hours:
            return Overspent("gpu_hours", f"the budget of {budget.gpu_hours:g} GPU-hours is spent")
        return None


def most_used(plan: Plan) -> tuple[int, int]:
    """Return the most nodes and GPUs of any trial, so that a budget is never exceeded if they vary."""
    nodes = max(resources.nodes for resources in plan.all_resources)
    return nodes, max(resources.nodes * resources.gpus for resources in plan.all_resources)


def _between(began: str | None, last: str | None) -> float:
    """Return the seconds between two times; 0 if the clock was set back in between."""
    if began is None or last is None:
        return 0.0
    return max(0.0, (datetime.fromisoformat(last) - datetime.fromisoformat(began)).total_seconds())
