"""Make a folder a workspace: a first scenario and a .gitignore."""

import shlex
from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.cli.examples import examples


@click.command(
    help=f"{__doc__}\n\nDIR is made if it is not there; without it, this folder. Files that exist stay as they are."
    + examples("bench init", "bench init my-benchmarks")
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def command(ctx: click.Context, folder: Path | None) -> None:
    from benchhouse.api import places, scaffold

    workspace = options.workspace(ctx)
    made = scaffold.workspace(places.workspace(workspace.root / folder) if folder else workspace)
    for path in made:
        click.echo(path)
    first = next((path for path in made if path.suffix == ".yaml"), Path("scenarios/first.yaml"))
    if folder:
        show.note(f"next:  cd {shlex.quote(str(folder))} && bench run scenarios/first.yaml")
    else:
        show.note(f"next:  bench run {first}")
