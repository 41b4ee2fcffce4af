"""Print a JSON Schema: scenario, benchmark, recipe, trial, metrics, meta, manifest, telemetry, or site."""

import click

from benchhouse.api import screen
from benchhouse.api.catalog import FILE_FORMATS, FileFormat
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb


@verb(__doc__, "bench schema scenario > scenario.schema.json   for an editor that checks as you type", json=False)
@click.argument("file_format", type=click.Choice(FILE_FORMATS))
def command(workspace: Workspace, file_format: FileFormat) -> None:
    screen.as_json(workspace.catalog.json_schema(file_format))
