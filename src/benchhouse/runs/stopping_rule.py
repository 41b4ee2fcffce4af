"""Repetitions until a point is known well enough: the rule of a scenario, asked of what is sealed on disk."""

from collections.abc import Callable, Sequence

from benchhouse.analysis.stopping import enough
from benchhouse.evidence.folder import read_metrics, sealed_outcome
from benchhouse.plan import Plan, PlannedTrial
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.scenario import Until
from benchhouse.schema.trial import trial_id


def rule(workspace: WorkspaceFolder, plan: Plan, run_id: str) -> Callable[[PlannedTrial], bool | None]:
    """Tells of a planned trial whether its point has repetitions enough without it. The folders are the memory: a run
    that was killed and resumed decides as if nothing had happened."""
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


def _value(folder: TrialFolder, until: Until) -> float:
    rows = [
        row
        for row in read_metrics(folder).benchhouse.measurements
        if row.scope == "trial" and not row.window and until.metric in (None, row.metric)
    ]
    found = _headline(rows, until)
    if found is None:
        named = ", ".join(sorted({row.metric for row in read_metrics(folder).benchhouse.measurements})) or "none"
        asked = " ".join(word for word in (until.metric, until.stat) if word) or "a metric with a direction"
        raise BenchError(
            f"repetitions: until: {asked} is not among what the trials measure ({named})",
            f"name one of them: `until: {{ci: {until.ci:.2%}, metric: ...}}`; finished trials are kept",
        )
    return found.value


def _headline(rows: Sequence[Measurement], until: Until) -> Measurement | None:
    if until.stat:
        return next((row for row in rows if row.stat == until.stat), None)
    headline = [row for row in rows if row.stat in ("value", "mean")]
    return next((row for row in headline if row.direction or until.metric), None)
