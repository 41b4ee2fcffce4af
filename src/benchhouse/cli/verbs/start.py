"""Start the server of a recipe; or start a scenario in the background."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb


@verb(
    f"{__doc__}\n\nA scenario file is submitted: its servers are started first, then monitors and logs, then the load, "
    "and all of it ends together. Anything else is the name of a recipe.",
    "bench start scenarios/first.yaml",
    "bench start postgres   until: bench servers stop ID",
)
@click.argument("what", metavar="SCENARIO|RECIPE")
def command(workspace: Workspace, what: str, as_json: bool) -> None:
    from benchhouse.api.servers import StartedServer
    from benchhouse.cli.verbs.servers import show_started
    from benchhouse.cli.verbs.submit import show_submitted

    started = workspace.start(what, progress=screen.RunProgress())
    if isinstance(started, StartedServer):
        show_started(started, as_json)
    else:
        show_submitted(started, as_json)
