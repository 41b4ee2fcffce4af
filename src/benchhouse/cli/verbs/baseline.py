"""Accept the level of a metric that new runs are held to; show, list or clear what was accepted."""

import shlex

import click

from benchhouse.cli import options, show
from benchhouse.cli.examples import examples
from benchhouse.cli.shares import SHARE

_CASE = click.argument("case")
_METRIC = click.option("--metric", help="Which metric; by default the first that has a direction.")
_STAT = click.option("--stat", help="Which statistic of it: value, mean, p99, ...")


@click.group(
    help=__doc__
    + examples(
        "bench baseline accept first/name=short --why 'release 2.1'",
        "bench baseline show first/name=short",
        "bench baseline list",
    )
)
def command() -> None:
    pass


@command.command(
    help="Accept the level that the history of CASE has now: its runs since the last change."
    + examples(
        "bench baseline accept first/name=short --why 'release 2.1'",
        "bench baseline accept first/name=short --unless-worse 2%   for a schedule: exit code 3 when it is",
    )
)
@_CASE
@_METRIC
@_STAT
@click.option("--why", default="", help="For people who read it later.")
@click.option("--unless-worse", type=SHARE, help="Refuse if worse by more than this than what a person accepted last.")
@options.json_option
@click.pass_context
def accept(
    ctx: click.Context,
    case: str,
    metric: str | None,
    stat: str | None,
    why: str,
    unless_worse: float | None,
    as_json: bool,
) -> None:
    from benchhouse.api import history
    from benchhouse.api.looking import quantity

    record = history.accept(options.workspace(ctx), case, metric, stat, why, unless_worse)
    if as_json:
        show.as_json(record.model_dump(mode="json"))
        return
    click.echo(
        f"accepted {record.metric} {record.stat} = {quantity(record.level, record.unit)} "
        f"({show.count(record.n, 'run')}, up to {record.run_id})"
    )
    show.note(f"later runs are held to it:  bench history {options.asked_for(case, record.metric, record.stat)}")


@command.command(
    help="What is accepted for CASE, and how later runs stand to it."
    + examples(
        "bench baseline show first/name=short", "bench baseline show first/name=short --metric cpu_ms --stat p90"
    ),
    name="show",
)
@_CASE
@_METRIC
@_STAT
@options.json_option
@click.pass_context
def show_(ctx: click.Context, case: str, metric: str | None, stat: str | None, as_json: bool) -> None:
    from benchhouse.api import history
    from benchhouse.api.looking import quantity

    watched = history.history(options.workspace(ctx), case, metric, stat)
    if as_json:
        show.as_json(watched.baseline.model_dump(mode="json") if watched.baseline else None)
        return
    record = watched.baseline
    if record is None:
        click.echo(f"no baseline of {watched.history.name} is accepted for {watched.history.case.label}")
        show.note(options.next_for_baseline(watched))
        return
    said = record.why or record.rule
    rows = [
        ("level", quantity(record.level, record.unit)),
        ("runs", f"{record.n}, up to {record.run_id}"),
        ("accepted", f"{record.time} by a {record.by}" + (f": {said}" if said else "")),
        ("later runs", str(len(watched.later))),
        ("alarm", "none" if watched.alarm is None else f"at {watched.later[watched.alarm.at].run_id}"),
    ]  # fmt: skip
    for name, text in rows:
        click.echo(f"{name:<10}  {text}")
    show.note(f"see it:  bench history {options.asked_for(case, record.metric, record.stat)}")


@command.command(help="All baselines that count now." + examples("bench baseline list"), name="list")
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import history
    from benchhouse.api.looking import quantity

    records = history.baselines(options.workspace(ctx))
    if as_json:
        show.as_json([record.model_dump(mode="json") for record in records])
        return
    rows = [
        (record.benchmark_case_id[:8], record.target_name, f"{record.metric} {record.stat}",
         quantity(record.level, record.unit), record.n, record.run_id, record.by, record.why or record.rule)
        for record in records
    ]  # fmt: skip
    if rows:
        show.table(("case", "target", "metric", "level", "runs", "up to", "by", "why"), rows, right=("level", "runs"))
    else:
        click.echo("no baseline is accepted in this workspace")
        show.note("accept one:  bench baseline accept CASE")


@command.command(
    help="No baseline counts for CASE any more; what was accepted stays on record."
    + examples("bench baseline clear first/name=short --why 'another machine'")
)
@_CASE
@_METRIC
@_STAT
@click.option("--why", default="", help="For people who read it later.")
@click.pass_context
def clear(ctx: click.Context, case: str, metric: str | None, stat: str | None, why: str) -> None:
    from benchhouse.api import history

    record = history.clear(options.workspace(ctx), case, metric, stat, why)
    click.echo(f"cleared the baseline of {record.metric} {record.stat}")
    show.note(f"accept another:  bench baseline accept {shlex.quote(case)}")
