"""Put a run's sealed trials into the warehouse; on a cluster also submit again what broke. Safe to repeat."""

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import Exit


@click.command(help=__doc__)
@options.run_argument()
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool) -> int:
    from benchhouse.api import following

    workspace = options.workspace(ctx)
    collected = following.collect(workspace, following.find_run(workspace, run))
    if workspace.alarms.is_file():
        from benchhouse.automation import alarms

        alarms.after_run(workspace, show.note)
    code = Exit.TRIAL_FAILED if collected["skipped"] else Exit.GOOD
    if as_json:
        show.as_json(collected)
        return code
    click.echo(f"run {collected['run_id']}: {show.count(collected['trials'], 'trial')}, {collected['rows']} rows")
    for line in collected["skipped"]:
        show.note(f"skipped: {line}")
    show.unread_events(collected)
    if collected["under_way"]:
        show.note(f"{show.count(collected['under_way'], 'trial')} still under way:  bench status {collected['run_id']}")
        return code
    show.note(f"next:  bench report {collected['run_id']}")
    return code
