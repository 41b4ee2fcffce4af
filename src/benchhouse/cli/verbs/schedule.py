"""Schedules of runs: render one for a cluster that keeps it."""

from pathlib import Path

import click

from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

command = commands.group(__doc__, 'bench schedule render nightly.yaml --cron "0 2 * * *"   for kubectl apply -f -')


@command.verb(
    "Print the CronJob by which Kubernetes runs a scenario on schedule.",
    'bench schedule render nightly.yaml --cron "0 2 * * *"   for kubectl apply -f -',
    'bench schedule render nightly.yaml --cron "0 2 * * *" --timezone Europe/Berlin --kubernetes 1.32   ask no server',
    json=False,
)
@click.argument("scenario", type=commands.FILE)
@click.option("--cron", required=True, metavar="SCHEDULE", help="When: minute, hour, day, month, day of the week.")
@click.option("--on", type=click.Choice(["kubernetes"]), default="kubernetes", help="Who keeps it.")
@click.option("--timezone", "time_zone", default="", metavar="ZONE", help="Of the schedule; from Kubernetes 1.27 on.")
@click.option("--kubernetes", "kubernetes_version", default="", metavar="VERSION",
              help="Version of the server; by default it is asked.")  # fmt: skip
@commands.where_options
def render(workspace: Workspace, scenario: Path, cron: str, on: str, **options: str) -> None:
    click.echo(workspace.schedules.render(scenario, cron, **options), nl=False)
