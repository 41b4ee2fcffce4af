"""Accept a level of a metric, with which new runs are compared; show, list, or clear accepted levels."""

import shlex
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

_case = commands.together(click.argument("case"), commands.metric_options)
_why = click.option("--why", default="", help="A note for people who read it later.")
command = commands.group(
    __doc__,
    "bench baseline accept first/name=short --why 'release 2.1'",
    "bench baseline show first/name=short",
    "bench baseline list",
)


@command.verb(
    "Accept the level that the history of CASE has now: its runs since the last change.",
    "bench baseline accept first/name=short --why 'release 2.1'",
    "bench baseline accept first/name=short --unless-worse 2%   for a schedule: exit code 3 when it is",
)
@_case
@_why
@click.option(
    "--unless-worse", type=commands.SHARE, help="Refuse if worse by more than this than what a person accepted last."
)
def accept(workspace: Workspace, /, as_json: bool, **settings: Any) -> None:
    record = workspace.baselines.accept(**settings)
    if as_json:
        screen.as_json(record)
        return
    click.echo(
        f"accepted {record.metric} {record.stat} = {screen.quantity(record.level, record.unit)} "
        f"({screen.count(record.n, 'run')}, up to {record.run_id})"
    )
    case = screen.history_arguments(settings["case"], record.metric, record.stat)
    screen.note(f"later runs are held to it:  bench history {case}")


@command.verb(
    "What is accepted for CASE, and how later runs stand to it.",
    "bench baseline show first/name=short",
    "bench baseline show first/name=short --metric cpu_ms --stat p90",
)
@_case
def show_(workspace: Workspace, case: str, metric: str | None, stat: str | None, as_json: bool) -> None:
    watched = workspace.history(metric, case, stat=stat).watched
    if as_json:
        screen.as_json(watched.baseline)
        return
    record = watched.baseline
    if record is None:
        click.echo(f"no baseline of {watched.history.name} is accepted for {watched.history.case.label}")
        screen.note(screen.next_for_baseline(watched))
        return
    reason = record.why or record.rule
    facts = [
        ("level", screen.quantity(record.level, record.unit)),
        ("runs", f"{record.n}, up to {record.run_id}"),
        ("accepted", f"{record.time} by a {record.by}" + (f": {reason}" if reason else "")),
        ("later runs", str(len(watched.later))),
        ("alarm", "none" if watched.alarm is None else f"at {watched.later[watched.alarm.at].run_id}"),
    ]
    screen.facts(facts)
    screen.note(f"see it:  bench history {screen.history_arguments(case, record.metric, record.stat)}")


@command.verb("All baselines that count now.", "bench baseline list")
def list_(workspace: Workspace, as_json: bool) -> None:
    records = workspace.baselines.list()
    if as_json:
        screen.as_json(records)
        return
    if not records:
        click.echo("no baseline is accepted in this workspace")
        screen.note("accept one:  bench baseline accept CASE")
        return
    rows = [
        (record.benchmark_case_id[:8], record.target_name, f"{record.metric} {record.stat}",
         screen.quantity(record.level, record.unit), record.n, record.run_id, record.by, record.why or record.rule)
        for record in records
    ]  # fmt: skip
    screen.table(("case", "target", "metric", "level", "runs", "up to", "by", "why"), rows, right=("level", "runs"))


@command.verb(
    "No baseline counts for CASE any more; what was accepted stays on record.",
    "bench baseline clear first/name=short --why 'another machine'",
    json=False,
)
@_case
@_why
def clear(workspace: Workspace, /, case: str, **settings: Any) -> None:
    record = workspace.baselines.clear(case, **settings)
    click.echo(f"cleared the baseline of {record.metric} {record.stat}")
    screen.note(f"accept another:  bench baseline accept {shlex.quote(case)}")
