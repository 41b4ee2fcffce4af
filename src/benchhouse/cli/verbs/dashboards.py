"""Grafana dashboards and Prometheus rules; made of the metrics and series that are declared."""

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
def write(folder: Path, as_json: bool) -> None:
    from benchhouse.api import dashboards

    written = dashboards.write(folder)
    if as_json:
        screen.as_json({"files": [str(path) for path in written]})
        return
    for path in written:
        click.echo(path)
    screen.note(f"in prometheus.yml:  rule_files: [{written[-1].absolute()}]")
    screen.note("in Grafana:  Dashboards, New, Import; then:  bench run SCENARIO.yaml --textfile DIR")
