"""Print a JSON Schema: scenario, benchmark, recipe, trial, metrics, meta, manifest, telemetry or site."""

import click

from benchhouse.cli import show
from benchhouse.cli.examples import examples


@click.command(
    help=__doc__ + examples("bench schema scenario > scenario.schema.json   for an editor that checks as you type")
)
@click.argument(
    "noun",
    type=click.Choice(
        ["scenario", "benchmark", "recipe", "site", "trial", "metrics", "meta", "manifest", "telemetry"],
    ),
)
def command(noun: str) -> None:
    from benchhouse.api import catalogue

    show.as_json(catalogue.json_schema(noun))
