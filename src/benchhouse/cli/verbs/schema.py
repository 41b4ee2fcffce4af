"""Print a JSON Schema: scenario, benchmark, recipe, trial, metrics, meta, manifest, telemetry or site."""

import click

from benchhouse.api import screen
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

    screen.as_json(catalogue.json_schema(noun))
