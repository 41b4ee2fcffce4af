"""Stop a run and everything it started; finished trials are kept."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands


@commands.verb(__doc__, "bench stop @last   what is sealed is kept")
@commands.run_argument()
def command(workspace: Workspace, run: str, as_json: bool) -> None:
    chosen = workspace[run]
    stopped = chosen.stop()
    if as_json:
        screen.as_json(stopped)
        return
    for text in stopped.said:
        screen.note(text)
    if stopped.cancelled_trials:
        click.echo(f"run {stopped.run_id} stopped, {screen.count(stopped.cancelled_trials, 'trial')} cancelled")
    elif stopped.stopped_job:
        click.echo(f"run {stopped.run_id} stopped (job {stopped.stopped_job})")
    elif stopped.stopped_pid:
        click.echo(f"run {stopped.run_id} stopped (process {stopped.stopped_pid})")
    else:
        click.echo(f"run {stopped.run_id} was not running; {stopped.swept_processes} left processes ended")
    screen.note(f"next:  {chosen.status().next}")
