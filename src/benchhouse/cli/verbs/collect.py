"""Collect a run's sealed trials into the tables; on a cluster, also submit broken trials again. Safe to repeat."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit


@commands.verb(__doc__, "bench collect @last   what a submitted run has sealed so far")
@commands.run_argument()
def command(workspace: Workspace, run: str, as_json: bool) -> int:
    collected = workspace[run].collect(progress=screen.RunProgress())
    code = Exit.TRIAL_FAILED if collected.skipped else Exit.GOOD
    if as_json:
        screen.as_json(collected)
        return code
    click.echo(f"run {collected.run_id}: {screen.count(collected.trials, 'trial')}, {collected.rows} rows")
    if collected.under_way:
        screen.note(f"{screen.count(collected.under_way, 'trial')} still under way:  bench status {collected.run_id}")
    else:
        screen.note(f"next:  bench report {collected.run_id}")
    return code
