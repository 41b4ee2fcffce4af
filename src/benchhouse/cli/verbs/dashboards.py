"""Grafana dashboards and Prometheus rules; for every metric and series that is declared."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.group(help=__doc__ + examples("bench dashboards write grafana"))
def command() -> None:
    pass


@command.command(
    help="Write the dashboards as JSON and the rules as YAML into DIR." + examples("bench dashboards write grafana")
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def write(ctx: click.Context, folder: Path, as_json: bool) -> None:
    written = options.workspace(ctx).dashboards(folder)
    if as_json:
        screen.as_json(written.to_dict())
        return
    for path in written.files:
        click.echo(path)
    screen.note(f"in prometheus.yml:  rule_files: [{written.rules.absolute()}]")
    screen.note("in Grafana:  Dashboards, New, Import; then:  bench run SCENARIO.yaml --textfile DIR")
