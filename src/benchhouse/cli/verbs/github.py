"""List orders from GitHub webhooks and comments."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

command = commands.group(
    f"{__doc__}\n\n`bench serve` takes webhooks, `bench agent` carries them out and answers.",
    "bench github list   what was asked for, and what became of it",
    "bench github report gate.json   in a workflow: a check run, and one comment in the pull request",
)


@command.verb("Commands and events that came, the newest first, and what became of each.", "bench github list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="So many at most.")
def list_(workspace: Workspace, limit: int, as_json: bool) -> None:
    orders = workspace.github.list(limit)
    if as_json:
        screen.as_json(orders)
        return
    rows = [
        (order.time, f"{order.repository}#{order.number}" if order.number else order.repository, order.login,
         order.state, order.run_id, order.answer or order.text)
        for order in orders
    ]  # fmt: skip
    screen.table(("time", "thread", "who", "state", "run", "answer"), rows)


@command.verb(
    "In a workflow of GitHub Actions: write what `bench gate --json` said beside the commit and into its pull "
    "request.\n\nA check run and one comment, which later reports of that NAME replace. The file is only data: which "
    "commit and which pull request it belongs to says GitHub's event.",
    "bench github report gate.json --name serving",
)
@click.argument("gate", type=commands.FILE)
@click.option("--name", default="benchmark", show_default=True, help="Of the check run and the comment.")
def report(workspace: Workspace, gate: Path, name: str, as_json: bool) -> None:
    reported = workspace.github.report(gate, name=name)
    if as_json:
        screen.as_json(reported)
        return
    place = reported.place
    where = f"pull request {place.number}" if place.number else "no open pull request has this commit"
    click.echo(f"{reported.judgement}: check run of {place.sha[:12]}, {where}")
