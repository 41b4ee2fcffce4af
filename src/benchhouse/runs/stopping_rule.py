"""Repetitions until a point is known well enough: a scenario's rule, evaluated on the sealed folders.

A trial that the rule may make unnecessary is held until those before it have ended, then run or skipped.
"""

from collections.abc import Callable, Iterable, Iterator

from benchhouse.evidence.folder import read_metrics, sealed_outcome
from benchhouse.plan.expand import Plan, PlannedTrial
from benchhouse.runs.setup import ActiveTrial
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.scenario import Until
from benchhouse.schema.trial import trial_id

Enough = Callable[[PlannedTrial], bool | None]
"""Returns whether a trial's point has enough repetitions without it; None if those before it must end first."""


class HeldTrials:
    """A filter that applies the rule, if there is one, to each trial in order."""

    def __init__(self, enough: Enough | None) -> None:
        self.enough = enough
        self.held: ActiveTrial | None = None
        self.skipped = 0

    def next(self, todo: Iterator[ActiveTrial], under_way: Iterable[ActiveTrial]) -> ActiveTrial | None:
        """Return the next trial to run; None if there is none, or if the rule needs earlier trials to end first."""
        item = self.held or next(todo, None)
        self.held = None
        busy = {other.planned.instance_digest for other in under_way} if self.enough else set()
        while item is not None and self.enough and not item.planned.warmup:
            decided = self.enough(item.planned)
            if decided is None and item.planned.instance_digest in busy:
                self.held = item
                return None
            if not decided:
                break
            self.skipped += 1
            item = next(todo, None)
        return item


def rule(workspace: WorkspaceFolder, plan: Plan, run_id: str) -> Enough:
    """Return the rule. It uses the sealed folders alone, so that a run decides the same after a kill and resume."""
    from benchhouse.analysis.stopping import enough  # few scenarios have such a rule

    until, scenario = plan.scenario.until, plan.scenario.scenario
    assert until is not None
    values: dict[str, list[float | None]] = {}

    def decide(planned: PlannedTrial) -> bool | None:
        mine = values.setdefault(planned.instance_digest, [])
        while len(mine) < planned.repetition:
            name = trial_id(run_id, planned.instance_digest, len(mine), warmup=False)
            folder = workspace.trial(scenario, name)
            outcome = sealed_outcome(folder)
            if outcome is None:
                break
            mine.append(_value(folder, until) if outcome == "succeeded" else None)
        return enough(mine, len(mine), planned.repetition, until.ci, until.min, until.max)

    return decide


def _value(folder: TrialFolder, until: Until) -> float | None:
    measurements = read_metrics(folder).benchhouse.measurements
    rows = [row for row in measurements if row.scope == "trial" and not row.window]
    if until.stat:
        rows = [row for row in rows if row.stat == until.stat and until.metric in (None, row.metric)]
    else:
        rows = [row for row in rows if row.stat in ("value", "mean")]
        rows = [row for row in rows if (row.metric == until.metric if until.metric else row.direction)]
    if not rows:
        measured = ", ".join(sorted({row.metric for row in measurements})) or "none"
        wanted = " ".join(filter(None, (until.metric, until.stat))) or "a metric with a direction"
        raise BenchError(
            f"repetitions: until: {wanted} is not among what the trials measure ({measured})",
            f"name one of them: `until: {{ci: {until.ci:.2%}, metric: ...}}`; finished trials are kept",
        )
    return rows[0].value if rows[0].valid else None
