"""Write a report of runs: one HTML file that opens offline, and Markdown."""

import click

from benchhouse.cli import options, show


@click.command(help=__doc__)
@click.argument("runs", nargs=-1, shell_complete=options.complete_run)
@options.json_option
@click.pass_context
def command(ctx: click.Context, runs: tuple[str, ...], as_json: bool) -> None:
    from benchhouse.api import following, looking

    workspace = options.workspace(ctx)
    run_ids = [following.find_run(workspace, run) for run in runs or ("@last",)]
    page = looking.report(workspace, run_ids)
    if as_json:
        show.as_json(
            {"html": str(page), "markdown": str(page.parent / "report.md"), "json": str(page.parent / "report.json")}
        )
        return
    click.echo(page)
    invalid = sum(len(following.status(workspace, run_id)["invalid"]) for run_id in run_ids)
    if invalid:
        show.note(f"{show.count(invalid, 'trial')} INVALID, in no number of it; the report says why")
    show.note(f"also {page.parent / 'report.md'}; each number's reference walks back:  bench trace REF")
