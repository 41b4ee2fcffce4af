"""Load from clients on nodes of their own: run, list, stop."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError

command = commands.group(
    __doc__,
    "bench clients run scenario.yaml --count 4 --executor slurm   load from four jobs",
    "bench clients list   those that stand by or work",
    "bench clients stop --all",
)


@command.verb(
    "Run a scenario whose load comes from clients that begin on one edge; they end with the run.",
    "bench clients run scenario.yaml --count 4 --executor slurm --cpus 8",
    "bench clients run scenario.yaml --server llm=vllm-3fa2   against a server of an earlier job",
)
@commands.scenario_argument()
@click.option("--count", type=click.IntRange(1, 256), default=2, show_default=True, help="Number of clients.")
@click.option("--server", "servers", multiple=True, metavar="SERVICE=ID",
              help="A service of the scenario is this server of bench servers ps.")  # fmt: skip
@commands.job_options
def run(
    workspace: Workspace, /, scenario: Path, count: int, servers: tuple[str, ...], as_json: bool, **settings: Any
) -> int:
    from benchhouse.cli.verbs.run import ShownRun, interrupt_on_signals

    site = settings["site"]
    placement = commands.placement_of(settings)
    interrupt_on_signals()
    progress = ShownRun(as_json)
    named = commands.pairs(servers, "--server", "SERVICE=ID")
    run = workspace.clients.run(scenario, count=count, servers=named, placement=placement, progress=progress, site=site)
    progress.show(run)
    return progress.exit_code


@command.verb("List load clients that stand by or work.", "bench clients list")
def list_(workspace: Workspace, as_json: bool) -> None:
    clients = workspace.clients.running()
    if as_json:
        screen.as_json(clients)
        return
    if not clients:
        screen.note("no load client is running; a run with some:  bench clients run SCENARIO --count 4")
        return
    rows = [(item.id, item.job, item.phase, item.host, item.started) for item in clients]
    screen.table(("id", "job", "health", "host", "since"), rows)


@command.verb(
    "Stop load clients, such as those that a killed run left.", "bench clients stop --all", "bench clients stop ID"
)
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "everything", is_flag=True, help="Stop all of them.")
def stop(workspace: Workspace, id_: str | None, everything: bool, as_json: bool) -> None:
    if (id_ is None) != everything:
        raise BenchError("give the id of a client, or --all", "see: bench clients list")
    ended = workspace.clients.stop(id_ or "")
    if as_json:
        screen.as_json(ended)
        return
    click.echo(f"stopped {', '.join(ended.stopped)}" if ended.stopped else "no load client was running")
