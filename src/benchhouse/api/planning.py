"""From a scenario file to a reviewed plan: validate, plan, estimate."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchhouse.api import places
from benchhouse.catalog.benchmarks import Registered, find_benchmark
from benchhouse.catalog.entries import plug
from benchhouse.catalog.listing import Listed, list_experiments, resolve, serving
from benchhouse.catalog.loading import load
from benchhouse.plan import Plan, ScenarioFile, load_scenario, make_plan, parse_scenario
from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Experiment
from benchhouse.schema.layout import Workspace
from benchhouse.schema.problems import ProblemsError
from benchhouse.schema.trial import ExperimentRef


@dataclass(frozen=True)
class Prepared:
    """A scenario that was read, resolved and planned."""

    file: ScenarioFile
    plan: Plan
    registered: Registered | None
    notes: list[str]


def prepare(workspace: Workspace, path: Path) -> Prepared:
    """Read, resolve and plan a scenario file; every mistake is raised with its place in the file."""
    return _prepare(workspace, load_scenario(path, os.environ))


def prepare_text(workspace: Workspace, text: str, path: str) -> Prepared:
    return _prepare(workspace, parse_scenario(text, path, os.environ))


def _prepare(workspace: Workspace, file: ScenarioFile) -> Prepared:
    scenario, document, notes = file.scenario, file.document, list[str]()
    listed = list_experiments(places.cache())
    registered: Registered | None = None
    try:
        if scenario.uses:
            where = "uses"
            registered = find_benchmark(scenario.uses, workspace.benchmarks)
            found = resolve(registered.benchmark.experiment, registered.benchmark.version, listed)
        elif scenario.experiment:
            where = "experiment"
            found = resolve(scenario.experiment, scenario.version, listed)
        else:
            where = "workload"
            guessed = _by_service(file, listed)
            if isinstance(guessed, str):
                notes.append(guessed)
                return Prepared(file, make_plan(file, None, _unknown(file)), None, notes)
            found = guessed
        code = _load(found)
    except ProblemsError:
        raise
    except BenchError as error:
        raise ProblemsError([document.problem((where,), error.message, expected=error.hint)]) from error
    if found.deprecated:
        instead = f"; use {found.deprecated['replaced_by']}" if found.deprecated.get("replaced_by") else ""
        notes.append(f"{found.name} {found.version} is deprecated: {found.deprecated['reason']}{instead}")
    plan = make_plan(file, code, found.ref(), registered.benchmark if registered else None)
    plug("runtimes", scenario.runtime.kind)
    return Prepared(file, plan, registered, notes)


def _by_service(file: ScenarioFile, listed: Iterable[Listed]) -> Listed | str:
    """The experiment for `workload: {component, service}`; a note when none that drives it is installed."""
    workload, document = file.scenario.workload, file.document
    component, service = workload.get("component"), workload.get("service")
    if not isinstance(component, str) or not isinstance(service, str):
        message = "this scenario does not say what to run"
        expected = "experiment: NAME, or uses: BENCHMARK, or workload: {component: ..., service: ...}"
        raise ProblemsError([document.problem((), message, expected=expected)])
    listed = list(listed)
    names = serving(component, service, listed)
    if len(names) > 1:
        raise BenchError(
            f"several experiments drive {component}/{service}: {', '.join(names)}", "name one: experiment: ..."
        )
    if names:
        return resolve(names[0], file.scenario.version, listed)
    return (
        f"no installed experiment drives component '{component}' with service '{service}': it can be planned, not run"
    )


def _unknown(file: ScenarioFile) -> ExperimentRef:
    workload = file.scenario.workload
    name = f"{workload['component']}/{workload['service']}"
    return ExperimentRef(name=name, version="", object="", distribution="", distribution_version="")


def _load(found: Listed) -> Experiment:
    try:
        return load(found.ref())
    except BenchError:
        raise
    except Exception as error:
        raise BenchError(f"experiment '{found.name}' can't be imported: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Estimate:
    """How long and how dear a plan will be, from history; None where there is none."""

    trials_known: int
    seconds: float | None
    cost: float | None
    basis: str


def estimate(workspace: Workspace, plan: Plan, parallel: int) -> Estimate:
    """From the mean duration of earlier trials: of the same instance where it ran before, else of the experiment."""
    if not (workspace.warehouse / "catalog.sqlite").exists():
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


def describe_plan(workspace: Workspace, prepared: Prepared, points: int = 20) -> dict[str, Any]:
    """All that `bench plan` shows, as plain data."""
    plan, scenario = prepared.plan, prepared.plan.scenario
    guess = estimate(workspace, plan, scenario.parallel)
    shown = list(islice((point for _, point in plan.space.points()), points))
    return {
        "scenario": scenario.scenario,
        "experiment": plan.experiment.name,
        "version": plan.experiment.version,
        "distribution": f"{plan.experiment.distribution} {plan.experiment.distribution_version}".strip(),
        "points": plan.points,
        "repetitions": scenario.repetitions,
        "warmup": scenario.warmup,
        "trials": plan.trial_count,
        "order": scenario.order,
        "seed": scenario.seed,
        "axes": plan.axes,
        "executor": scenario.executor,
        "runtime": plug("runtimes", scenario.runtime.kind)().packages(scenario.runtime, places.cache()),
        "resources": plan.resources.model_dump(exclude_none=True),
        "limits": plan.limits.model_dump(exclude_none=True),
        "budget": scenario.budget.model_dump(exclude_none=True),
        "estimate": {"seconds": guess.seconds, "cost": guess.cost, "basis": guess.basis},
        "plan_digest": plan.digest,
        "first_points": shown,
        "notes": prepared.notes,
    }
