"""Watch the machine or a process without a benchmark: start, stop, ps."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.quantities import show_bytes, show_seconds

_EXAMPLES = """\b
Examples:
  bench monitors start --for 10m           the machine, for ten minutes
  bench monitors start --pid 4711          also that process and all below it, until it ends
  bench monitors stop                      end the last one and show what it saw
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    help="Start a monitor in the background."
    + examples(
        "bench monitors start --for 10m", "bench monitors start --pid 4711 --interval 0.2s   ends with that process"
    )
)
@click.option("--pid", type=click.IntRange(min=1), help="Also watch this process and all below it; ends with it.")
@click.option("--interval", default="1s", show_default=True, help="Time between samples; at least 0.1s.")
@click.option("--for", "for_", metavar="TIME", help="End by itself after so long: 90s, 10m, 1h30m.")
@options.json_option
@click.pass_context
def start(ctx: click.Context, pid: int | None, interval: str, for_: str | None, as_json: bool) -> None:
    from benchhouse.api import monitoring

    started = monitoring.start(options.workspace(ctx).folder, pid=pid, interval=interval, for_=for_)
    if as_json:
        screen.as_json(started)
        return
    click.echo(f"monitor {started['monitor_id']} samples {started['watches']} every {started['interval_s']:g} s")
    screen.note(f"next:  bench monitors stop {started['monitor_id']}")


@command.command(
    help="End a monitor; its samples are kept as Parquet files, with a summary."
    + examples("bench monitors stop   the last one")
)
@click.argument("monitor", default="@last")
@options.json_option
@click.pass_context
def stop(ctx: click.Context, monitor: str, as_json: bool) -> None:
    from benchhouse.api import monitoring

    ended = monitoring.stop(options.workspace(ctx).folder, monitor)
    if as_json:
        screen.as_json(ended)
        return
    length = f" after {show_seconds(ended['duration_s'])}" if ended["duration_s"] is not None else ""
    click.echo(f"monitor {ended['monitor_id']} {ended['state']}{length}: {ended['folder']}")
    wide = max((len(one["scope"]) for one in ended["seen"]), default=0)
    for one in ended["seen"]:
        click.echo(f"  {one['scope']:<{wide}}  {one['series']} {one['stat']}  {_value(one['value'], one['unit'])}")


def _value(value: float, unit: str) -> str:
    if unit == "B":
        return show_bytes(value)
    return f"{value:.0%}" if unit == "1" else f"{screen.number(value)} {unit}"


@command.command(help="The monitors of this workspace, and whether they run." + examples("bench monitors ps"))
@options.json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import monitoring

    found = monitoring.list_monitors(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(found)
        return
    if not found:
        screen.note("no monitors here yet; start one:  bench monitors start --for 10m")
        return
    # The name begins with the time of its start.
    columns = ("monitor", "state", "process", "watches", "every")
    rows = [
        (one["monitor_id"], one["state"], one["process"], one["watches"], f"{one['interval_s']:g} s") for one in found
    ]
    screen.table(columns, rows)
