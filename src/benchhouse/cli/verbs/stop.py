"""End a run and everything it started; what is finished is kept."""

import click

from benchhouse.cli import options, show


@click.command(help=__doc__)
@options.run_argument()
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool) -> None:
    from benchhouse.api import following

    workspace = options.workspace(ctx)
    stopped = following.stop(workspace, following.find_run(workspace, run))
    if as_json:
        show.as_json(stopped)
        return
    if stopped["cancelled_trials"]:
        click.echo(f"run {stopped['run_id']} stopped, {show.count(stopped['cancelled_trials'], 'trial')} cancelled")
    elif stopped["stopped_job"]:
        click.echo(f"run {stopped['run_id']} stopped (job {stopped['stopped_job']})")
    elif stopped["stopped_pid"]:
        click.echo(f"run {stopped['run_id']} stopped (process {stopped['stopped_pid']})")
    else:
        click.echo(f"run {stopped['run_id']} was not running; {stopped['swept_processes']} left processes ended")
    show.note(f"next:  {following.status(workspace, stopped['run_id'])['next']}")
