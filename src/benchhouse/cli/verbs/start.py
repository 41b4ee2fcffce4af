"""Start the server of a recipe; or start a scenario in the background."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError


@commands.verb(
    f"{__doc__}\n\nA scenario file is submitted: its servers are started first, then monitors and logs, then the load, "
    "and all of it ends together. Anything else is the name of a recipe: its server is left running, or with --load "
    "the server, a monitor of its node and load clients are brought up in this order, the scenario is run against "
    "them, and all of it is ended in reverse.",
    "bench start scenarios/first.yaml",
    "bench start postgres   until: bench servers stop ID",
    "bench start vllm -p model=/data/llama --load load.yaml --clients 4 --executor slurm --gpus 1",
)
@click.argument("what", metavar="SCENARIO|RECIPE")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the recipe.")
@click.option(
    "--load", "scenario", type=commands.FILE, metavar="SCENARIO", help="Run this scenario against the server."
)
@click.option("--clients", type=click.IntRange(0, 256),
              help="With --load: number of load clients, 1 by default; 0: load from the trials.")  # fmt: skip
@commands.job_options
def command(
    workspace: Workspace, /, what: str, parameters: tuple[str, ...], scenario: Path | None, clients: int | None,
    as_json: bool, **settings: Any,
) -> int:  # fmt: skip
    from benchhouse.api.lifecycle import OfferedLoad
    from benchhouse.api.run import Run
    from benchhouse.api.servers import StartedServer
    from benchhouse.cli.verbs.run import ShownRun, interrupt_on_signals
    from benchhouse.cli.verbs.servers import show_started
    from benchhouse.cli.verbs.submit import show_submitted

    if clients is not None and scenario is None:
        raise BenchError("--clients goes with --load", "bench start RECIPE --load SCENARIO --clients 4")
    placement = commands.placement_of(settings)
    load = OfferedLoad(scenario, 1 if clients is None else clients) if scenario else None
    if load:
        interrupt_on_signals()
    progress = ShownRun(as_json)
    values = commands.pairs(parameters, "--parameter")
    started = workspace.start(what, values, load=load, placement=placement, progress=progress)
    if isinstance(started, Run):
        progress.show(started)
    elif isinstance(started, StartedServer):
        show_started(started, as_json)
    else:
        show_submitted(started, as_json)
    return progress.exit_code
