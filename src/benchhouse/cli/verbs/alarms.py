"""Be told when a number goes beyond a limit: who is told of what stands in alarms.yaml."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit


@click.group(
    help=f"{__doc__}\n\nWhere there is such a file, every `bench run` and `bench collect` checks it at its end."
    + examples(
        "bench alarms list   how each stands; nobody is told",
        "bench alarms check   tell what is new; exit code 3 while one fires",
        "bench alarms try serving   does the channel work?",
        "bench alarms log",
    )
)
def command() -> None:
    pass


@command.command(name="list", help="How each alarm stands now; nobody is told." + examples("bench alarms list"))
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    from dataclasses import asdict

    from benchhouse.automation import alarms

    found = alarms.standings(options.workspace(ctx).folder)
    if as_json:
        screen.as_json([asdict(standing) for standing in found])
        return
    screen.table(
        ("alarm", "state", "why"), [(item.alarm, item.state, item.sentence) for item in found], whole=("state",)
    )
    screen.note("tell what is new:  bench alarms check")


@command.command(
    help="Look at each alarm, record what changed, tell who is to be told. Exit code 3 while one fires."
    + examples("bench alarms check   as every bench run does at its end")
)
@options.json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> int:
    from benchhouse.automation import alarms

    checked = alarms.check(options.workspace(ctx).folder)
    code = Exit.REGRESSION if checked.firing else Exit.GOOD
    if as_json:
        screen.as_json(checked.as_dict() | {"exit_code": int(code)})
        return code
    rows = [(item.alarm, item.state, item.sentence) for item in checked.standings]
    screen.table(("alarm", "state", "why"), rows, whole=("state",))
    for line in checked.lines:
        if line.action == "told":
            told = f"could not be told: {line.error}" if line.error else "was told"
            screen.note(f"{line.alarm}: {line.channel} {told}")
    if any(line.error for line in checked.lines):
        screen.note("who could not be told is told at the next check; try it:  bench alarms try CHANNEL")
    for standing in checked.firing[:1]:
        screen.note(f"look closer:  bench report {standing.run_id}")
    return code


@command.command(
    name="try",
    help="Send a message to CHANNEL that says it is a trial."
    + examples("bench alarms try serving   a channel of alarms.yaml"),
)
@click.argument("channel")
@click.pass_context
def try_(ctx: click.Context, channel: str) -> None:
    from benchhouse.automation import alarms

    error = alarms.try_channel(options.workspace(ctx).folder, channel)
    if error:
        raise BenchError(f"{channel} could not be told: {error}", "Mend it in alarms.yaml, or set the variable.")
    click.echo(f"{channel} was told")


@command.command(
    help="What fired, what was over, and who was told, oldest first."
    + examples("bench alarms log", "bench alarms log --json")
)
@options.json_option
@click.pass_context
def log(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.automation import alarms

    lines = alarms.recorded(options.workspace(ctx).folder)
    if as_json:
        screen.as_json([line.model_dump(mode="json") for line in lines])
        return
    if not lines:
        click.echo("no alarm has fired in this workspace")
        return
    rows = [
        (line.time, line.alarm, line.action, line.channel or line.run_id, line.error or line.sentence) for line in lines
    ]
    screen.table(("time", "alarm", "what", "run or channel", "why"), rows, whole=("time", "what"))
