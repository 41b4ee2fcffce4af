"""Print a JSON Schema: scenario, benchmark, recipe, trial, metrics, meta, manifest, telemetry or site."""

import click

from benchhouse.api import screen
from benchhouse.api.catalog import FILE_FORMATS, FileFormat
from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.command(
    help=__doc__ + examples("bench schema scenario > scenario.schema.json   for an editor that checks as you type")
)
@click.argument("file_format", type=click.Choice(FILE_FORMATS))
@click.pass_context
def command(ctx: click.Context, file_format: FileFormat) -> None:
    screen.as_json(options.workspace(ctx).catalog.json_schema(file_format))
