"""Write a report of runs: one HTML file that opens offline, and Markdown."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import AUDIENCES, Audience, Workspace
from benchhouse.cli import commands


@commands.verb(
    f"{__doc__}\n\n--for writes one page for one reader, from the same evidence: of one run against the newest "
    "earlier one of its plan, or of two, the second against the first.",
    "bench report   of the last run",
    "bench report @last-1 @last   of both, side by side",
    "bench report @last-1 @last --for product   impact, confidence, next step",
)
@click.argument("runs", nargs=-1, shell_complete=commands.complete_run)
@click.option("--for", "audience", type=click.Choice(AUDIENCES), help="One page for one reader.")
def command(workspace: Workspace, runs: tuple[str, ...], audience: Audience | None, as_json: bool) -> None:
    if audience and len(runs) > 2:
        raise click.UsageError("--for takes one run, or two: the base and the run")
    page = workspace.report(*runs, audience=audience, progress=screen.RunProgress())
    if as_json:
        screen.as_json(page.to_dict())
        return
    click.echo(page.html)
    if audience:
        screen.note(page.headline)
        run = workspace[runs[-1] if runs else "@last"]
        screen.note(f"also {page.markdown}; the evidence behind it:  bench why {run.id}")
        return
    if page.invalid:
        screen.note(f"{screen.count(page.invalid, 'trial')} INVALID, in no number of it; the report says why")
    screen.note(f"also {page.markdown}; each number's reference walks back:  bench trace REF")
