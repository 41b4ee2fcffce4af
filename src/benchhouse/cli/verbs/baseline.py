"""Accept the level of a metric that new runs are held to; show, list or clear what was accepted."""

import shlex

import click

from benchhouse.api import screen
from benchhouse.cli import options
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
    record = options.workspace(ctx).baselines.accept(case, metric, stat=stat, why=why, unless_worse=unless_worse)
    if as_json:
        screen.as_json(record.model_dump(mode="json"))
        return
    click.echo(
        f"accepted {record.metric} {record.stat} = {screen.quantity(record.level, record.unit)} "
        f"({screen.count(record.n, 'run')}, up to {record.run_id})"
    )
    screen.note(
        f"later runs are held to it:  bench history {screen.history_arguments(case, record.metric, record.stat)}"
    )


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
    watched = options.workspace(ctx).history(metric, case, stat=stat).watched
    if as_json:
        screen.as_json(watched.baseline.model_dump(mode="json") if watched.baseline else None)
        return
    record = watched.baseline
    if record is None:
        click.echo(f"no baseline of {watched.history.name} is accepted for {watched.history.case.label}")
        screen.note(screen.next_for_baseline(watched))
        return
    said = record.why or record.rule
    rows = [
        ("level", screen.quantity(record.level, record.unit)),
        ("runs", f"{record.n}, up to {record.run_id}"),
        ("accepted", f"{record.time} by a {record.by}" + (f": {said}" if said else "")),
        ("later runs", str(len(watched.later))),
        ("alarm", "none" if watched.alarm is None else f"at {watched.later[watched.alarm.at].run_id}"),
    ]  # fmt: skip
    for name, text in rows:
        click.echo(f"{name:<10}  {text}")
    screen.note(f"see it:  bench history {screen.history_arguments(case, record.metric, record.stat)}")


@command.command(help="All baselines that count now." + examples("bench baseline list"), name="list")
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    records = options.workspace(ctx).baselines.list()
    if as_json:
        screen.as_json([record.model_dump(mode="json") for record in records])
        return
    rows = [
        (record.benchmark_case_id[:8], record.target_name, f"{record.metric} {record.stat}",
         screen.quantity(record.level, record.unit), record.n, record.run_id, record.by, record.why or record.rule)
        for record in records
    ]  # fmt: skip
    if rows:
        screen.table(("case", "target", "metric", "level", "runs", "up to", "by", "why"), rows, right=("level", "runs"))
    else:
        click.echo("no baseline is accepted in this workspace")
        screen.note("accept one:  bench baseline accept CASE")


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
    record = options.workspace(ctx).baselines.clear(case, metric, stat=stat, why=why)
    click.echo(f"cleared the baseline of {record.metric} {record.stat}")
    screen.note(f"accept another:  bench baseline accept {shlex.quote(case)}")
