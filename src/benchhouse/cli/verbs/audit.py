"""Show the writes through `bench serve`: who, when, what, and how each was answered."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(f"{__doc__} Newest first.", "bench audit", "bench audit -n 200 --json")
@click.option("-n", "most", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
def command(workspace: Workspace, most: int, as_json: bool) -> None:
    records = workspace.audit.list()[:most]
    if as_json:
        screen.as_json(records)
        return
    if not records:
        click.echo("nothing was written through a server")
        return
    rows = [(item.time[:19], item.who, item.verb, item.state, item.run_id, item.answer) for item in records]
    screen.table(("time", "who", "what", "state", "run", "answer"), rows, whole=("time", "state"))
