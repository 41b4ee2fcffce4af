"""Print a descriptor of Benchmark AI (TOML) as a scenario; parts without effect are listed on stderr."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(
    __doc__,
    "bench convert resnet50-descriptor.toml > resnet50.yaml",
    "bench run resnet50-descriptor.toml   runs it without that step",
)
@click.argument("descriptor", type=commands.FILE)
@commands.where_options
def command(workspace: Workspace, /, descriptor: Path, as_json: bool, **where: str | None) -> None:
    made = workspace.convert(descriptor, **where)
    if as_json:
        screen.as_json(made)
        return
    click.echo(made.scenario, nl=False)
    for line in made.notes:
        screen.note(f"note: {line}")
