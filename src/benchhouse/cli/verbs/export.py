"""Export the values of a run, or a packet, for another tool."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import completing, verb

_MOST_LINES = 8


@verb(
    f"{__doc__}\n\nNumbers that are INVALID or of trials that failed are left out, and named on stderr. "
    "See: bench list exporters.",
    "bench export @last --as openmetrics > run.om",
    "bench export @last --as bencher -o results.json",
    "bench export @last --as mlflow -o sqlite:///mlflow.db   twice, and it is there once",
    "bench export claim-4f1c.tar --as croissant -o croissant.json   of a packet: bench claim export",
)
@click.argument("subject", metavar="RUN|PACKET")
@click.option("--as", "kind", metavar="KIND", required=True, help="The format.",
              shell_complete=completing(lambda ws: ws.catalog.exporters()))  # fmt: skip
@click.option("-o", "--output", metavar="FILE|FOLDER|STORE",
              help="Where to; without it a document is printed.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file, or a folder that an earlier export made.")
@click.option("--licence", default="", metavar="URL", help="Of a packet: the licence it is published under.")
@click.option("--url", default="", metavar="URL", help="Of a packet: where it is published.")
def command(
    workspace: Workspace, subject: str, kind: str, output: str | None, force: bool, licence: str, url: str,
    as_json: bool,
) -> None:  # fmt: skip
    made = workspace.export(subject, kind, output, force=force, licence=licence, url=url)
    if as_json:
        screen.as_json(made)
    elif made.where:
        click.echo(made.where)
    else:
        click.echo(made.text, nl=False)
    for line in made.left_out[:_MOST_LINES]:
        screen.note(f"left out: {line}")
    if (more := len(made.left_out) - _MOST_LINES) > 0:
        screen.note(f"and {screen.count(more, 'more line')}: --json")
    known = f", {screen.count(made.known, 'point')} there before" if made.known else ""
    screen.note(f"exported {made.subject} as {kind}: {screen.count(made.points, 'point')}{known}")
