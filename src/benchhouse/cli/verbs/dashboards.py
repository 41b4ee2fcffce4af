"""Write Grafana dashboards and Prometheus rules; for every metric and series that is declared."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import FILE, group

command = group(__doc__, "bench dashboards write grafana")


@command.verb("Write the dashboards as JSON and the rules as YAML into DIR.", "bench dashboards write grafana")
@click.argument("folder", metavar="DIR", type=FILE)
def write(workspace: Workspace, folder: Path, as_json: bool) -> None:
    written = workspace.dashboards(folder)
    if as_json:
        screen.as_json(written.to_dict())
        return
    for path in written.files:
        click.echo(path)
    screen.note(f"in prometheus.yml:  rule_files: [{written.rules.absolute()}]")
    screen.note("without a Prometheus:  served.json reads from  bench serve  through Grafana's Infinity data source")
    screen.note("in Grafana:  Dashboards, New, Import; then:  bench run SCENARIO.yaml --textfile DIR")
