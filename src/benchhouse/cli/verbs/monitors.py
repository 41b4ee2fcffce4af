"""Monitor the machine or a process without a benchmark: start, stop, ps."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.quantities import show_bytes, show_seconds

_EXAMPLES = """\b
Examples:
  bench monitors start --for 10m           the machine, for ten minutes
  bench monitors start --pid 4711          also that process and all below it, until it ends
  bench monitors stop                      end the last one and show what it measured
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
@click.option("--pid", type=click.IntRange(min=1), help="Also monitor this process and all below it; ends with it.")
@click.option(
    "--interval",
    "interval_s",
    type=options.DURATION,
    default="1s",
    show_default=True,
    help="Time between samples, at least 0.1s.",
)
@click.option("--for", "for_s", type=options.DURATION, help="End after this time: 90s, 10m, 1h30m.")
@options.json_option
@click.pass_context
def start(ctx: click.Context, pid: int | None, interval_s: float, for_s: float | None, as_json: bool) -> None:
    monitor = options.workspace(ctx).monitors.start(pid=pid, interval_s=interval_s, for_s=for_s)
    if as_json:
        screen.as_json(screen.plain(monitor))
        return
    click.echo(f"monitor {monitor.monitor_id} samples {monitor.watches} every {monitor.interval_s:g} s")
    screen.note(f"next:  bench monitors stop {monitor.monitor_id}")


@command.command(
    help="End a monitor and summarise it; its samples are kept as Parquet files."
    + examples("bench monitors stop   the last one")
)
@click.argument("monitor", default="@last")
@options.json_option
@click.pass_context
def stop(ctx: click.Context, monitor: str, as_json: bool) -> None:
    ended = options.workspace(ctx).monitors.stop(monitor)
    if as_json:
        screen.as_json(screen.plain(ended))
        return
    duration = f" after {show_seconds(ended.duration_s)}" if ended.duration_s is not None else ""
    click.echo(f"monitor {ended.monitor_id} {ended.state}{duration}: {ended.folder}")
    width = max((len(reading.scope) for reading in ended.seen), default=0)
    for reading in ended.seen:
        click.echo(
            f"  {reading.scope:<{width}}  {reading.series} {reading.stat}  {_value(reading.value, reading.unit)}"
        )


def _value(value: float, unit: str) -> str:
    if unit == "B":
        return show_bytes(value)
    return f"{value:.0%}" if unit == "1" else f"{screen.number(value)} {unit}"


@command.command(help="List the monitors of this workspace, and whether they run." + examples("bench monitors ps"))
@options.json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    monitors = options.workspace(ctx).monitors.all()
    if as_json:
        screen.as_json(screen.plain(monitors))
        return
    if not monitors:
        screen.note("no monitors in this workspace yet; start one:  bench monitors start --for 10m")
        return
    # The name begins with the time of its start.
    columns = ("monitor", "state", "process", "watches", "every")
    screen.table(
        columns,
        [(item.monitor_id, item.state, item.process, item.watches, f"{item.interval_s:g} s") for item in monitors],
    )
