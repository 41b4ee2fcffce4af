"""Make this folder a workspace: a first scenario and a .gitignore."""

from pathlib import Path

import click

from benchhouse.cli import options, show


@click.command(help=__doc__)
@click.pass_context
def command(ctx: click.Context) -> None:
    from benchhouse.api import scaffold

    made = scaffold.workspace(options.workspace(ctx))
    for path in made:
        click.echo(path)
    first = next((path for path in made if path.suffix == ".yaml"), Path("scenarios/first.yaml"))
    show.note(f"next:  bench run {first}")
