"""Start a scenario in the background and return at once."""

from pathlib import Path

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError


@click.command(help=__doc__)
@options.scenario_argument(required=False)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="The same as SCENARIO.")
@click.option("--new", "fresh", is_flag=True, help="Start a new run even if one of the same plan is unfinished.")
@options.where_options
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    scenario: Path | None,
    config: Path | None,
    fresh: bool,
    as_json: bool,
    **where: str | None,
) -> None:
    from benchhouse.api import planning, running

    path = scenario or config
    if path is None:
        raise BenchError("give a scenario file", "bench submit -c SCENARIO.yaml")
    workspace = options.workspace(ctx)
    prepared = planning.prepare(workspace, path, planning.Where(**where))
    ledger = running.open_run(workspace, prepared, path, fresh, show.note)
    pid = running.start_in_background(workspace, ledger)
    if as_json:
        show.as_json({"run_id": ledger.folder.run_id, "pid": pid, "trials": prepared.plan.trial_count})
        return
    click.echo(ledger.folder.run_id)
    amount = show.count(prepared.plan.trial_count, "trial")
    show.note(f"submitted {amount}; watch:  bench status {ledger.folder.run_id} --watch")
