"""Bring up a recipe's server; or start a scenario in the background."""

from pathlib import Path

import click

from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.command(
    help=f"""{__doc__}

A file of a scenario is submitted: its servers come up first, then monitors and logs, then the load, and all of it
ends together. Anything else is taken for a recipe."""
    + examples("bench start scenarios/first.yaml", "bench start postgres   until: bench servers stop ID")
)
@click.argument("what", metavar="SCENARIO|RECIPE")
@options.json_option
@click.pass_context
def command(ctx: click.Context, what: str, as_json: bool) -> None:
    from benchhouse.cli.verbs import servers, submit
    from benchhouse.documents.yaml_reader import load_yaml

    if what.endswith((".yaml", ".yml")) and "scenario" in (load_yaml(Path(what)).data or {}):
        ctx.invoke(submit.command, scenario=Path(what), config=None, fresh=False, as_json=as_json)
    else:
        ctx.invoke(servers.start, recipe=what, given=(), replicas=None, timeout=None, as_json=as_json)
