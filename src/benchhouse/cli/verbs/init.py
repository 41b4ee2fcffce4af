"""Make this folder a workspace: a first scenario and a .gitignore."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options


@click.command(help=__doc__)
@click.pass_context
def command(ctx: click.Context) -> None:
    from benchhouse.nexus import scaffold

    made = scaffold.workspace(options.workspace(ctx).folder)
    for path in made:
        click.echo(path)
    first = next((path for path in made if path.suffix == ".yaml"), Path("scenarios/first.yaml"))
    screen.note(f"next:  bench run {first}")
