"""Show what a scenario would run: points, trials, time, cost, digest."""

from pathlib import Path
from typing import Any

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quoting import printable


@click.command(help=__doc__)
@options.scenario_argument(required=False)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="The same as SCENARIO.")
@click.option("--dry-run", is_flag=True, help="Print the exact jobs of the first trials.")
@click.option("--points", default=20, show_default=True, type=click.IntRange(min=0), help="How many points to list.")
@options.where_options
@options.json_option
@options.logical_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    scenario: Path | None,
    config: Path | None,
    dry_run: bool,
    points: int,
    as_json: bool,
    **where: str | None,
) -> None:
    from benchhouse.api import planning, room, running

    path = scenario or config
    if path is None:
        raise BenchError("give a scenario file", "bench plan SCENARIO.yaml")
    workspace = options.workspace(ctx)
    all_of_them = planning.prepare_all(workspace, path, planning.Where(**where))
    if dry_run:
        for prepared in all_of_them:
            click.echo(running.render(workspace, prepared))
        return
    described = [planning.describe_plan(workspace, prepared, points) for prepared in all_of_them]
    if as_json:
        show.as_json(described if len(described) > 1 else described[0])
        return
    for prepared, one in zip(all_of_them, described, strict=True):
        _print(one, room.room_text(workspace, prepared))
        click.echo() if len(described) > 1 else None
    installed = all(one["distribution"] for one in described)
    said = "".join(f" --{option} {value}" for option, value in where.items() if value)
    show.note(f"next:  bench run {path}{said}" if installed else "next:  bench list experiments")


def _print(plan: dict[str, Any], storage: str) -> None:
    from benchhouse.schema.quantities import show_seconds

    estimate = plan["estimate"]
    time = show_seconds(estimate["seconds"]) if estimate["seconds"] is not None else "unknown"
    cost = f", cost {show.number(estimate['cost'])}" if estimate["cost"] is not None else ""
    repeated = f"{show.count(plan['points'], 'point')} x {show.count(plan['repetitions'], 'repetition')}"
    upto = ""
    if until := plan["until"]:
        upto = "up to "
        repeated = f"{show.count(plan['points'], 'point')} x {until['min']} to {until['max']} repetitions"
        repeated += f" (until known to {until['ci']:.2%})"
    warmups = f" + {plan['warmup']} warm-ups each" if plan["warmup"] else ""
    facts = [
        ("scenario", plan["scenario"]),
        ("experiment", f"{plan['experiment']} {plan['version']} ({plan['distribution'] or 'not installed'})"),
        ("trials", f"{upto}{plan['trials']} = {repeated}{warmups}, {plan['order']}, seed {plan['seed']}"),
        ("where", f"{plan['executor']}; {plan['runtime']}"),
        ("resources", _pairs(plan["resources"])),
        ("limits", _pairs(plan["limits"]) or "none"),
        ("time", f"{time}{cost} ({estimate['basis']})"),
        ("storage", storage),
        ("plan digest", plan["plan_digest"]),
    ]
    show.facts(facts)
    if plan["first_points"] and plan["first_points"][0]:
        click.echo()
        columns = list(plan["first_points"][0])
        rows = [[_short(point[column]) for column in columns] for point in plan["first_points"]]
        show.table(columns, rows)
        more = plan["points"] - len(rows)
        if more:
            show.note(f"... and {more} more points (--points N shows more)")
    for line in plan["notes"]:
        show.note(f"note: {line}")


def _pairs(values: dict[str, Any]) -> str:
    from benchhouse.schema.quantities import show_bytes, show_seconds

    shown = {"memory": show_bytes, "wall": show_seconds, "cpu": show_seconds}
    return ", ".join(f"{key} {shown.get(key, str)(value)}" for key, value in values.items())


def _short(value: Any) -> str:
    return printable(str(value.get("name", value)) if isinstance(value, dict) else str(value))
