"""Run schedules, and process orders from GitHub."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\nRuns that it began go on when it ends. Of two agents one works and the other takes over when that "
    "one ends; no slot is run twice.",
    "bench agent   ends with Ctrl-C",
    "bench agent --poll   ask GitHub for new comments, where its webhooks can't reach us",
    "bench agent --once   only what is due now, as a timer or cron calls it",
    "bench schedule install service   let systemd keep it running",
    json=False,
)
@click.option("--once", is_flag=True, help="Carry out what is due now, and end.")
@click.option("--poll", is_flag=True, help="Ask GitHub for new comments in the repositories of workspace.yaml.")
def command(workspace: Workspace, once: bool, poll: bool) -> None:
    if not once:
        screen.note("the agent looks for what is to be done   (Ctrl-C ends it; runs go on)")
    workspace.schedules.run_agent(once=once, poll=poll, note=screen.note)
