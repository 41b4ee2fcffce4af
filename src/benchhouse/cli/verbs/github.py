"""What GitHub asks for by webhooks and comments."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

command = commands.group(
    f"{__doc__}\n\n`bench serve` takes webhooks, `bench agent` carries them out and answers.",
    "bench github list   what was asked for, and what became of it",
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
