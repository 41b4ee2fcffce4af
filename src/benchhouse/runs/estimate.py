"""What a plan will take, guessed from earlier trials: time, money and disk space."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from benchhouse.catalog.entries import plug
from benchhouse.plan import Plan
from benchhouse.runs.disk_space import needed, room_text
from benchhouse.runs.preparation import Prepared
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.catalog import FILE_NAME


@dataclass(frozen=True)
class Estimate:
    """How long and how expensive a plan will be, from history; None where there is none."""

    trials_known: int
    seconds: float | None
    cost: float | None
    basis: str


@dataclass(frozen=True)
class StorageNeed:
    """What the results will take on disk."""

    bytes: int
    files: int
    basis: str
    text: str
    """The same in words, with the room that is left."""


@dataclass(frozen=True)
class PlanSummary:
    """All that `bench plan` shows."""

    scenario: str
    experiment: str
    version: str
    distribution: str
    """The package that offers the experiment; empty where none is installed."""
    points: int
    repetitions: int
    until: Mapping[str, Any] | None
    warmup: int
    trials: int
    order: str
    seed: int
    axes: list[str]
    executor: str
    runtime: str
    resources: Mapping[str, Any]
    limits: Mapping[str, Any]
    budget: Mapping[str, Any]
    estimate: Estimate
    storage: StorageNeed
    plan_digest: str
    first_points: list[dict[str, Any]]
    notes: list[str]


def estimate(workspace: WorkspaceFolder, plan: Plan, parallel: int) -> Estimate:
    """From the mean duration of earlier trials: of the same instance where it ran before, else of the experiment."""
    if not (workspace.warehouse / FILE_NAME).exists():
        return Estimate(0, None, None, "no history in this workspace")
    from benchhouse.warehouse.query import Warehouse

    sql = (
        "SELECT instance_digest, avg(duration_s) AS mean, count(*) AS n FROM trial_fact "
        "WHERE experiment = $experiment AND outcome = 'succeeded' GROUP BY 1"
    )
    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query(sql, {"experiment": plan.experiment.name}).rows
    if not rows:
        return Estimate(0, None, None, f"no earlier trial of {plan.experiment.name} in this workspace")
    known = {row[0]: row[1] for row in rows}
    overall = sum(row[1] * row[2] for row in rows) / sum(row[2] for row in rows)
    sample = list(islice(plan.instances(), 10_000))
    matched = [known[digest] for instance in sample if (digest := instance.digest()) in known]
    per_trial = (sum(matched) + overall * (len(sample) - len(matched))) / len(sample)
    seconds = per_trial * plan.trial_count / max(1, parallel)
    price = plan.scenario.price_per_hour
    cost = per_trial * plan.trial_count / 3600 * price * plan.resources.nodes if price is not None else None
    basis = f"{len(matched)} of {len(sample)} points ran before" if matched else "mean of this experiment's trials"
    return Estimate(sum(row[2] for row in rows), seconds, cost, basis)


def summarise(workspace: WorkspaceFolder, prepared: Prepared, points: int = 20) -> PlanSummary:
    """A plan for a person to review, with its first points."""
    plan, scenario = prepared.plan, prepared.plan.scenario
    need = needed(workspace, prepared, plan.trial_count)
    return PlanSummary(
        scenario=scenario.scenario,
        experiment=plan.experiment.name,
        version=", ".join(item.experiment.version for item in plan.plans),
        distribution=f"{plan.experiment.distribution} {plan.experiment.distribution_version}".strip(),
        points=plan.points,
        repetitions=scenario.most_repetitions,
        until=scenario.until.model_dump() if scenario.until else None,
        warmup=scenario.warmup,
        trials=plan.trial_count,
        order=scenario.order,
        seed=scenario.seed,
        axes=plan.axes,
        executor=scenario.executor,
        runtime=plug("runtimes", scenario.runtime.kind)().packages(scenario.runtime, prepared.place(workspace)),
        resources=plan.resources.model_dump(exclude_none=True),
        limits=plan.limits.model_dump(exclude_none=True),
        budget=scenario.budget.model_dump(exclude_none=True),
        estimate=estimate(workspace, plan, scenario.parallel),
        storage=StorageNeed(need.size, need.files, need.basis, room_text(workspace, prepared)),
        plan_digest=plan.digest,
        first_points=list(islice(plan.shown_points(), points)),
        notes=prepared.notes,
    )
