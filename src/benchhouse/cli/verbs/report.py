"""Write a report of runs: one HTML file that opens offline, and Markdown."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.layout import Workspace

_AUDIENCES = ["engineering", "product", "partner"]


@click.command(
    help=f"{__doc__}\n\n--for writes one page for one reader, from the same evidence: of one run against the newest "
    "earlier one of its plan, or of two, the second against the first."
    + examples(
        "bench report   of the last run",
        "bench report @last-1 @last   of both, side by side",
        "bench report @last-1 @last --for product   impact, confidence, next step",
    )
)
@click.argument("runs", nargs=-1, shell_complete=options.complete_run)
@click.option("--for", "audience", type=click.Choice(_AUDIENCES), help="One page for one reader.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, runs: tuple[str, ...], audience: str | None, as_json: bool) -> None:
    from benchhouse.api import looking
    from benchhouse.runs import status

    workspace = options.workspace(ctx).folder
    if audience:
        _view(workspace, runs, audience, as_json)
        return
    run_ids = [status.find_run(workspace, run) for run in runs or ("@last",)]
    page = looking.report(workspace, run_ids, say=screen.note)
    if as_json:
        screen.as_json(
            {"html": str(page), "markdown": str(page.parent / "report.md"), "json": str(page.parent / "report.json")}
        )
        return
    click.echo(page)
    invalid = sum(len(status.status(workspace, run_id)["invalid"]) for run_id in run_ids)
    if invalid:
        screen.note(f"{screen.count(invalid, 'trial')} INVALID, in no number of it; the report says why")
    screen.note(f"also {page.parent / 'report.md'}; each number's reference walks back:  bench trace REF")


def _view(workspace: Workspace, runs: tuple[str, ...], audience: str, as_json: bool) -> None:
    from benchhouse.api import why

    if len(runs) > 2:
        raise click.UsageError("--for takes one run, or two: the base and the run")
    found = why.why(workspace, runs[-1] if runs else "@last", runs[0] if len(runs) == 2 else None)
    page = why.page(workspace, found, audience)
    if as_json:
        screen.as_json({"html": str(page), "markdown": str(page.with_suffix(".md")), "headline": found.headline})
        return
    click.echo(page)
    screen.note(found.headline)
    screen.note(f"also {page.with_suffix('.md')}; the evidence behind it:  bench why {found.run_id}")
