"""Print a JSON Schema: scenario, benchmark, recipe, trial, metrics, meta, manifest, telemetry or site."""

import click

from benchhouse.cli import show


@click.command(help=__doc__)
@click.argument(
    "noun",
    type=click.Choice(
        ["scenario", "benchmark", "recipe", "site", "trial", "metrics", "meta", "manifest", "telemetry"],
    ),
)
def command(noun: str) -> None:
    from benchhouse.api import catalogue

    show.as_json(catalogue.json_schema(noun))
