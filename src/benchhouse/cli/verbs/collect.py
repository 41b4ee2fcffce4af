"""Put a run's sealed trials into the warehouse; on a cluster also submit again what broke. Safe to repeat."""

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import Exit


@click.command(help=__doc__)
@options.run_argument()
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool) -> int:
    collected = options.workspace(ctx)[run].collect(progress=screen.RunProgress())
    code = Exit.TRIAL_FAILED if collected.skipped else Exit.GOOD
    if as_json:
        screen.as_json(screen.plain(collected))
        return code
    click.echo(f"run {collected.run_id}: {screen.count(collected.trials, 'trial')}, {collected.rows} rows")
    if collected.under_way:
        screen.note(f"{screen.count(collected.under_way, 'trial')} still under way:  bench status {collected.run_id}")
    else:
        screen.note(f"next:  bench report {collected.run_id}")
    return code
