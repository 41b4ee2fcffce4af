"""Runs on a schedule: add one for `bench agent`, or render it for a cluster that keeps it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.schedules import ScheduleStanding, SlotRecord

command = commands.group(
    __doc__,
    'bench schedule add nightly.yaml --cron "0 2 * * *" --timezone Europe/Berlin',
    "bench agent   carries schedules out",
    "bench schedule list",
    'bench schedule render nightly.yaml --cron "0 2 * * *"   for kubectl apply -f -',
)


def _names(workspace: Workspace) -> dict[str, str]:
    return {item.name: item.cron for item in workspace.schedules.list()}


_name_argument = click.argument("name", shell_complete=commands.completing(_names))
_cron_option = click.option(
    "--cron",
    default="",
    metavar="LINE",
    help="When: minute, hour, day, month, day of the week; by default as a descriptor says.",
)


@command.verb(
    "Keep a schedule for SCENARIO; `bench agent` carries it out.\n\n"
    "A slot that can't begin when it is due is missed: --missed says what then happens.",
    'bench schedule add nightly.yaml --cron "0 2 * * *"',
    'bench schedule add nightly.yaml --cron "30 1 * * 1-5" --timezone Europe/Berlin --jitter 10m --cadence nightly',
    'bench schedule add load.yaml --cron "0 * * * *" --window 20:00-06:00 --missed skip --overlap skip --tell ops',
)
@click.argument("scenario", type=commands.FILE)
@_cron_option
@click.option("--name", default="", help="Name of the schedule; by default that of the file.")
@click.option("--timezone", metavar="ZONE", help="Time zone of the line and of hours, e.g. Europe/Berlin; else UTC.")
@click.option("--jitter", "jitter_s", type=commands.DURATION, help="Begin up to so much later, always the same a slot.")
@click.option("--window", metavar="HOURS", help="Hours in which runs may begin: 22:00-06:00.")
@click.option("--quiet", metavar="HOURS", help="Hours in which none begins: 08:00-18:00.")
@click.option("--max-age", "max_age_s", type=commands.DURATION, help="Leave out a slot that is later than this; 24h.")
@click.option("--missed", type=click.Choice(["once", "skip", "all"]),
              help="Missed slots: run the newest (once), none, or all.")  # fmt: skip
@click.option("--overlap", type=click.Choice(["wait", "skip", "allow"]),
              help="While the run before goes on: wait, skip the slot, or run both.")  # fmt: skip
@click.option("--backoff", "backoff_s", type=commands.DURATION,
              help="Pause after a failed run, doubled with each further one.")  # fmt: skip
@click.option("--cadence", metavar="WORD", help="What people call it: nightly, weekly. Runs carry it.")
@click.option("--tell", multiple=True, metavar="CHANNEL", help="Channel of alarms.yaml; repeatable; by default all.")
@click.option("--tell-after", type=click.IntRange(1), help="Failures in a row after which they are notified; 3.")
@click.option("--replace", is_flag=True, help="Change the schedule of that name.")
@commands.where_options
def add(workspace: Workspace, scenario: Path, cron: str, as_json: bool, **settings: Any) -> None:
    settings["tell"] = list(settings["tell"])
    standing = workspace.schedules.add(scenario, cron, **settings)
    if as_json:
        screen.as_json(standing)
        return
    click.echo(f"{standing.name}: next run {standing.next_due}")
    screen.note("carried out by:  bench agent   (or bench schedule install service)")


@command.verb("All schedules: when each is due next, and how its last run ended.", "bench schedule list")
def list_(workspace: Workspace, as_json: bool) -> None:
    standings = workspace.schedules.list()
    if as_json:
        screen.as_json(standings)
        return
    if not standings:
        click.echo("no schedule is kept here")
        screen.note('keep one:  bench schedule add nightly.yaml --cron "0 2 * * *"')
        return
    rows = [
        (item.name, item.cron, item.timezone, item.state, item.next_due or "-", _last(item.last)) for item in standings
    ]
    screen.table(("schedule", "cron", "zone", "state", "next", "last run"), rows, whole=("schedule", "cron", "next"))


@command.verb("One schedule: its settings and its newest slots.", "bench schedule show nightly")
@_name_argument
@click.option("--slots", type=click.IntRange(1), default=20, show_default=True, help="How many of its slots.")
def show(workspace: Workspace, name: str, slots: int, as_json: bool) -> None:
    standing = workspace.schedules.get(name, slots=slots)
    if as_json:
        screen.as_json(standing)
        return
    _show_facts(standing)
    rows = [(slot.due, slot.state, slot.run_id or "-", slot.ended or "-", slot.why) for slot in standing.slots]
    if rows:
        screen.table(("due", "state", "run", "ended", "why"), rows, whole=("due", "state", "run"))


@command.verb("Begin no more runs of NAME; one that goes on is left alone.", "bench schedule pause nightly", json=False)
@_name_argument
def pause(workspace: Workspace, name: str) -> None:
    workspace.schedules.pause(name)
    click.echo(f"{name} is paused")
    screen.note(f"carry on:  bench schedule resume {name}")


@command.verb(
    "Carry on with NAME; what was due meanwhile is not made up for.", "bench schedule resume nightly", json=False
)
@_name_argument
def resume(workspace: Workspace, name: str) -> None:
    click.echo(f"{name}: next run {workspace.schedules.resume(name).next_due}")


@command.verb(
    "Forget the schedule NAME; its runs and the record of its slots stay.", "bench schedule remove nightly", json=False
)
@_name_argument
def remove(workspace: Workspace, name: str) -> None:
    workspace.schedules.remove(name)
    click.echo(f"{name} is removed")


@command.verb("Start a run of NAME in the background now.", "bench schedule run-now nightly   prints the run's id")
@_name_argument
def run_now(workspace: Workspace, name: str, as_json: bool) -> None:
    slot = workspace.schedules.run_now(name, note=screen.note)
    if as_json:
        screen.as_json(slot)
        return
    click.echo(slot.run_id)
    screen.note(f"watch:  bench status {slot.run_id} --watch")


@command.verb(
    "Let this machine carry the schedules out: write a service or a timer of systemd, or a line of your crontab.",
    "bench schedule install service   an agent that goes on",
    "bench schedule install timer   systemd looks once a minute",
    "bench schedule install crontab --dry-run   only print the line",
    "bench schedule install crontab --remove",
    json=False,
)
@click.argument("keeper", type=click.Choice(["service", "timer", "crontab"]))
@click.option("--dry-run", is_flag=True, help="Only print what would be written.")
@click.option("--remove", is_flag=True, help="Take away what was written.")
def install(workspace: Workspace, keeper: Any, dry_run: bool, remove: bool) -> None:
    if remove:
        for unit in workspace.schedules.uninstall(keeper):
            click.echo(f"removed from {unit.path or 'your crontab'}")
        return
    for unit in workspace.schedules.install(keeper, write=not dry_run):
        if dry_run:
            click.echo((f"# {unit.path}\n" if unit.path else "") + unit.text, nl=False)
        else:
            click.echo(f"written: {unit.path or 'your crontab'}")
        if unit.then:
            screen.note(f"then:  {unit.then}")


@command.verb(
    "Print what makes a cluster run a scenario on schedule: a CronJob of Kubernetes, or lines for Slurm's scrontab.",
    'bench schedule render nightly.yaml --cron "0 2 * * *"   for kubectl apply -f -',
    'bench schedule render nightly.yaml --cron "0 2 * * *" --timezone Europe/Berlin --kubernetes 1.32   ask no server',
    'bench schedule render nightly.yaml --cron "0 2 * * *" --on scrontab   for scrontab -',
    json=False,
)
@click.argument("scenario", type=commands.FILE)
@_cron_option
@click.option("--on", type=click.Choice(["kubernetes", "scrontab"]), default="kubernetes", show_default=True,
              help="Who keeps it.")  # fmt: skip
@click.option("--timezone", "time_zone", default="", metavar="ZONE", help="Of the schedule; from Kubernetes 1.27 on.")
@click.option("--kubernetes", "kubernetes_version", default="", metavar="VERSION",
              help="Version of the server; by default it is asked.")  # fmt: skip
@commands.where_options
def render(workspace: Workspace, scenario: Path, cron: str, on: str, kubernetes_version: str, **options: Any) -> None:
    if on == "scrontab" and kubernetes_version:
        raise BenchError("--kubernetes goes with --on kubernetes", "leave it out")
    if on == "scrontab":
        click.echo(workspace.schedules.scrontab(scenario, cron, **options), nl=False)
        return
    text = workspace.schedules.render(scenario, cron, kubernetes_version=kubernetes_version, **options)
    click.echo(text, nl=False)


def _last(slot: "SlotRecord | None") -> str:
    return f"{slot.state}, {slot.run_id}" if slot else "-"


def _show_facts(standing: "ScheduleStanding") -> None:
    settings = standing.settings
    rows = [
        ("scenario", standing.scenario),
        ("cron", f"{standing.cron}, {standing.timezone}"),
        ("state", f"{standing.state}, {standing.failures} failures in a row" if standing.failures else standing.state),
        ("next", standing.next_due or "-"),
        ("missed slots", f"{settings.missed}, at most {screen.duration(settings.max_age_s)} late"),
        ("overlap", settings.overlap),
    ]
    rows += [(name, value) for name, value in (("window", settings.window), ("quiet", settings.quiet)) if value]
    rows += [
        (name, screen.duration(value))
        for name, value in (("jitter", settings.jitter_s), ("backoff", settings.backoff_s))
        if value
    ]
    if standing.cadence:
        rows.append(("cadence", standing.cadence))
    screen.facts(rows)
