"""Notify channels when a value crosses a limit of alarms.yaml."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

command = commands.group(
    f"{__doc__}\n\nWhere there is such a file, every `bench run` and `bench collect` checks it at its end.",
    "bench alarms list   the state of each; nobody is notified",
    "bench alarms check   notify of what is new; exit code 3 while one fires",
    "bench alarms try serving   does the channel work?",
    "bench alarms mute slow --why 'the disk is being replaced' --for 7d",
    "bench alarms log",
)


@command.verb("The state of each alarm; nobody is notified.", "bench alarms list")
def list_(workspace: Workspace, as_json: bool) -> None:
    alarms = workspace.alarms.list()
    if as_json:
        screen.as_json(alarms)
        return
    rows = [(item.alarm, _state(item.state, item.muted), item.sentence) for item in alarms]
    screen.table(("alarm", "state", "why"), rows, whole=("state",))
    screen.note("notify of what is new:  bench alarms check")


@command.verb(
    "Check each alarm, record what changed, and notify the channels. Exit code 3 while one fires.",
    "bench alarms check   as every bench run does at its end",
)
def check(workspace: Workspace, as_json: bool) -> int:
    checked = workspace.alarms.check()
    code = Exit.REGRESSION if checked.firing else Exit.GOOD
    if as_json:
        screen.as_json(checked.as_dict() | {"exit_code": int(code)})
        return code
    rows = [(item.alarm, _state(item.state, item.muted), item.sentence) for item in checked.standings]
    screen.table(("alarm", "state", "why"), rows, whole=("state",))
    for line in checked.lines:
        if line.action == "told":
            result = f"could not be notified: {line.error}" if line.error else "was notified"
            screen.note(f"{line.alarm}: {line.channel} {result}")
    if any(line.error for line in checked.lines):
        screen.note("a channel that failed is tried again at the next check; test it:  bench alarms try CHANNEL")
    for standing in checked.firing[:1]:
        screen.note(f"look closer:  bench report {standing.run_id}")
    return code


@command.verb(
    "Notify nobody of ALARM, with a reason: for a time, or until it is unmuted. It is looked at all the same.",
    "bench alarms mute slow --why 'the disk is being replaced' --for 7d",
)
@click.argument("alarm")
@click.option("--why", required=True, help="A note for people who read it later.")
@click.option("--for", "for_s", type=commands.DURATION, help="How long, e.g. 7d; by default until it is unmuted.")
def mute(workspace: Workspace, alarm: str, why: str, for_s: float | None, as_json: bool) -> None:
    notice = workspace.alarms.mute(alarm, why, for_s=for_s)
    if as_json:
        screen.as_json(notice)
        return
    click.echo(f"{alarm} is muted{f' until {notice.until[:16]} UTC' if notice.until else ''}")
    screen.note(f"hear it again:  bench alarms unmute {alarm}")


@command.verb("Notify of ALARM again.", "bench alarms unmute slow", json=False)
@click.argument("alarm")
def unmute(workspace: Workspace, alarm: str) -> None:
    workspace.alarms.unmute(alarm)
    click.echo(f"{alarm} is heard again")


@command.verb("Send a test message to CHANNEL.", "bench alarms try serving   a channel of alarms.yaml", json=False)
@click.argument("channel")
def try_(workspace: Workspace, channel: str) -> None:
    workspace.alarms.try_channel(channel)
    click.echo(f"{channel} was notified")


@command.verb(
    "What fired, what was resolved, and who was notified, oldest first.", "bench alarms log", "bench alarms log --json"
)
def log(workspace: Workspace, as_json: bool) -> None:
    lines = workspace.alarms.log()
    if as_json:
        screen.as_json(lines)
        return
    if not lines:
        click.echo("no alarm has fired in this workspace")
        return
    rows = [
        (line.time, line.alarm, line.action, line.channel or line.run_id, line.error or line.sentence or line.why)
        for line in lines
    ]
    screen.table(("time", "alarm", "what", "run or channel", "why"), rows, whole=("time", "what"))


def _state(state: str, muted: str) -> str:
    return f"{state}, muted" if muted else state
