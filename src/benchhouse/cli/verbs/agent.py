"""Carry out the schedules of this workspace until it is stopped."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\nRuns that it began go on when it ends. Of two agents one works and the other takes over when that "
    "one ends; no slot is run twice.",
    "bench agent   ends with Ctrl-C",
    "bench agent --once   only what is due now, as a timer or cron calls it",
    "bench schedule install service   let systemd keep it running",
    json=False,
)
@click.option("--once", is_flag=True, help="Carry out what is due now, and end.")
def command(workspace: Workspace, once: bool) -> None:
    if not once:
        screen.note("the agent looks for slots that are due   (Ctrl-C ends it; runs go on)")
    workspace.schedules.run_agent(once=once, note=screen.note)
