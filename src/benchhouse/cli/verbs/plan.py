"""Show what a scenario would run: points, trials, time, cost, digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import printable

if TYPE_CHECKING:
    from benchhouse.api.workspace import PlanSummary


@commands.verb(
    __doc__,
    "bench plan scenarios/first.yaml   points, trials, time, digest",
    "bench plan scenarios/first.yaml --dry-run   the exact jobs",
)
@commands.scenario_or_config
@click.option("--dry-run", is_flag=True, help="Print the exact jobs of the first trials.")
@click.option("--points", default=20, show_default=True, type=click.IntRange(min=0), help="How many points to list.")
@commands.where_options
@commands.contract_option
@commands.logical_options
def command(
    workspace: Workspace, /, scenario: Path | None, config: Path | None, dry_run: bool, points: int, as_json: bool,
    **where: str | None,
) -> None:  # fmt: skip
    path = scenario or config
    if path is None:
        raise BenchError("give a scenario file", "bench plan SCENARIO.yaml")
    if dry_run:
        show_jobs(workspace, path, where)
        return
    plans = workspace.plan(path, points=points, **where)
    if as_json:
        documents = [_document(plan) for plan in plans]
        screen.as_json(documents if len(plans) > 1 else documents[0])
        return
    for plan in plans:
        _print(plan)
        click.echo() if len(plans) > 1 else None
    installed = all(plan.distribution for plan in plans)
    chosen = "".join(f" --{option} {value}" for option, value in where.items() if value)
    screen.note(f"next:  bench run {path}{chosen}" if installed else "next:  bench list experiments")


def show_jobs(workspace: Workspace, path: Path, where: dict[str, Any]) -> None:
    """Print the exact jobs, then raise an error if they could not start now."""
    click.echo(workspace.render(path, **where))
    if lacking := workspace.missing(path, **where):
        raise BenchError("\n  - ".join(["cannot run: jobs would not find what they need:", *lacking]))


def _document(plan: "PlanSummary") -> dict[str, Any]:
    """Return a plan without its storage text: plans of one scenario print the same, however full the disk is."""
    document: dict[str, Any] = screen.plain(plan)
    del document["storage"]["text"]
    return document


def _print(plan: "PlanSummary") -> None:
    estimate = plan.estimate
    time = screen.duration(estimate.seconds) if estimate.seconds is not None else "unknown"
    cost = f", cost {screen.number(estimate.cost)}" if estimate.cost is not None else ""
    repeated = f"{screen.count(plan.points, 'point')} x {screen.count(plan.repetitions, 'repetition')}"
    upto = ""
    if until := plan.until:
        upto = "up to "
        repeated = f"{screen.count(plan.points, 'point')} x {until['min']} to {until['max']} repetitions"
        repeated += f" (until known to {until['ci']:.2%})"
    warmups = f" + {plan.warmup} warm-ups each" if plan.warmup else ""
    screen.facts([
        ("scenario", plan.scenario),
        ("experiment", f"{plan.experiment} {plan.version} ({plan.distribution or 'not installed'})"),
        ("trials", f"{upto}{plan.trials} = {repeated}{warmups}, {plan.order}, seed {plan.seed}"),
        ("where", f"{plan.executor}; {plan.runtime}"),
        ("resources", _pairs(plan.resources)),
        ("limits", _pairs(plan.limits) or "none"),
        ("time", f"{time}{cost} ({estimate.basis})"),
        ("storage", plan.storage.text),
        ("plan digest", plan.plan_digest),
    ])  # fmt: skip
    if plan.first_points and plan.first_points[0]:
        click.echo()
        columns = list(plan.first_points[0])
        rows = [[_short(point[column]) for column in columns] for point in plan.first_points]
        screen.table(columns, rows)
        if more := plan.points - len(rows):
            screen.note(f"... and {more} more points (--points N shows more)")
    for line in plan.notes:
        screen.note(f"note: {line}")


def _pairs(values: Mapping[str, Any]) -> str:
    shown = {"memory": screen.size, "wall": screen.duration, "cpu": screen.duration}
    return ", ".join(f"{key} {shown.get(key, str)(value)}" for key, value in values.items())


def _short(value: Any) -> str:
    return printable(str(value.get("name", value)) if isinstance(value, dict) else str(value))
