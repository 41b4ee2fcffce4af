"""Monitor the machine or a process without a benchmark: start, stop, ps; list what can be monitored."""

from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError

command = commands.group(
    __doc__,
    "bench monitors start --for 10m   the machine, for ten minutes",
    "bench monitors start --pid 4711   also that process and all below it, until it ends",
    "bench monitors stop   end the last one and show what it measured",
    "bench monitors list   what can be monitored, exporters too, and how sure that is",
)


@command.verb(
    "Start a monitor in the background.",
    "bench monitors start --for 10m",
    "bench monitors start --pid 4711 --interval 0.2s   ends with that process",
    "bench monitors start --executor slurm --node mel2001 --time 1h   a job on that node",
    "bench monitors start --server vllm-3fa2   the node of that server, inside its job",
)
@click.option("--pid", type=click.IntRange(min=1), help="Also monitor this process and all below it; ends with it.")
@click.option("--interval", "interval_s", type=commands.DURATION, default="1s", show_default=True,
              help="Time between samples, at least 0.1s.")  # fmt: skip
@click.option("--for", "for_s", type=commands.DURATION, help="End after this time: 90s, 10m, 1h30m.")
@click.option("--server", metavar="ID", help="The node of this server of bench servers ps, inside its batch job.")
@commands.job_options
def start(workspace: Workspace, /, server: str | None, as_json: bool, **settings: Any) -> None:
    from benchhouse.api.placement import Placement

    placement, progress = commands.placement_of(settings), screen.RunProgress()
    if server is None:
        monitor = workspace.monitors.start(placement=placement, progress=progress, **settings)
    elif placement != Placement() or settings.pop("pid"):
        raise BenchError("--server says where the monitor runs", "leave out --pid and the options of a batch job")
    else:
        monitor = workspace.monitors.start_for_server(server, progress=progress, **settings)
    if as_json:
        screen.as_json(monitor)
        return
    job = f" (job {monitor.job})" if monitor.job else ""
    place = "" if monitor.process else f" of {monitor.host}{job}"
    click.echo(f"monitor {monitor.monitor_id} samples {monitor.watches}{place} every {monitor.interval_s:g} s")
    screen.note(f"next:  bench monitors stop {monitor.monitor_id}")


@command.verb(
    "End a monitor and summarise it; its samples are kept as Parquet files.", "bench monitors stop   the last one"
)
@click.argument("monitor", default="@last")
def stop(workspace: Workspace, monitor: str, as_json: bool) -> None:
    ended = workspace.monitors.stop(monitor)
    if as_json:
        screen.as_json(ended)
        return
    duration = f" after {screen.duration(ended.duration_s)}" if ended.duration_s is not None else ""
    click.echo(f"monitor {ended.monitor_id} {ended.state}{duration}: {ended.folder}")
    width = max((len(reading.scope) for reading in ended.seen), default=0)
    for reading in ended.seen:
        value = _value(reading.value, reading.unit)
        click.echo(f"  {reading.scope:<{width}}  {reading.series} {reading.stat}  {value}")


def _value(value: float, unit: str) -> str:
    if unit == "B":
        return screen.size(value)
    return f"{value:.0%}" if unit == "1" else f"{screen.number(value)} {unit}"


@command.verb("List the monitors of this workspace, and whether they run.", "bench monitors ps")
def ps(workspace: Workspace, as_json: bool) -> None:
    monitors = workspace.monitors.all()
    if as_json:
        screen.as_json(monitors)
        return
    if not monitors:
        screen.note("no monitors in this workspace yet; start one:  bench monitors start --for 10m")
        return
    rows = [
        (item.monitor_id, item.state, item.job or item.process, item.host, item.watches, f"{item.interval_s:g} s")
        for item in monitors
    ]
    screen.table(("monitor", "state", "job", "host", "watches", "every"), rows)


@command.verb(
    "List what can be monitored: the machine, its GPUs, servers, and exporters by name.\n\nThe state is `works` where "
    "it was tried on the real thing, `contract-tested` where only pages in its documented format were read.",
    "bench monitors list",
    "bench monitors list --json   with the names of all metrics",
    name="list",
)
def list_(workspace: Workspace, as_json: bool) -> None:
    rows = workspace.monitors.list()
    if as_json:
        screen.as_json(rows)
        return
    cells = [(row.name, ", ".join(row.families), str(len(row.metrics)), row.state, row.programs) for row in rows]
    screen.table(("monitor", "families", "metrics", "state", "reads"), cells)
    screen.note(
        "an exporter in a scenario:  monitors: {prometheus: [{url: http://127.0.0.1:9400/metrics, exporter: dcgm}]}"
    )
