"""Make a folder a workspace: a first scenario and a .gitignore."""

import shlex
from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb


@verb(
    f"{__doc__}\n\nDIR is made if it is not there; without it, this folder. Files that exist stay as they are.",
    "bench init",
    "bench init my-benchmarks",
    json=False,
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path, file_okay=False))
def command(workspace: Workspace, folder: Path | None) -> None:
    made = workspace.init(folder)
    for path in made:
        click.echo(path)
    first = next((path for path in made if path.suffix == ".yaml"), Path("scenarios/first.yaml"))
    if folder:
        screen.note(f"next:  cd {shlex.quote(str(folder))} && bench run scenarios/first.yaml")
    else:
        screen.note(f"next:  bench run {first}")
