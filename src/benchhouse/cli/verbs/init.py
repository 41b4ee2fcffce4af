"""Make a folder a workspace: a first scenario and a .gitignore."""

import shlex
from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.command(
    help=f"{__doc__}\n\nDIR is made if it is not there; without it, this folder. Files that exist stay as they are."
    + examples("bench init", "bench init my-benchmarks")
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def command(ctx: click.Context, folder: Path | None) -> None:
    made = options.workspace(ctx).init(folder)
    for path in made:
        click.echo(path)
    first = next((path for path in made if path.suffix == ".yaml"), Path("scenarios/first.yaml"))
    if folder:
        screen.note(f"next:  cd {shlex.quote(str(folder))} && bench run scenarios/first.yaml")
    else:
        screen.note(f"next:  bench run {first}")
