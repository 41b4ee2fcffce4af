"""Start a scenario in the background and return at once."""

from pathlib import Path
from typing import Any

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
    from benchhouse.api import batch, carrying, planning, running

    path = scenario or config
    if path is None:
        raise BenchError("give a scenario file", "bench submit -c SCENARIO.yaml")
    workspace = options.workspace(ctx)
    prepared = planning.prepare(workspace, path, planning.Where(**where))
    ledger = running.open_run(workspace, prepared, path, fresh, show.note)
    run_id, trials = ledger.folder.run_id, prepared.plan.trial_count
    if prepared.plan.scenario.until and batch.outlives(prepared):
        show.note(f"a rule ends the repetitions: each  bench collect {run_id}  looks, and hands over the next ones")
    for line in prepared.notes:
        show.note(f"note: {line}")
    if batch.outlives(prepared):
        said: dict[str, Any] = {"under_way": batch.hand_over(workspace, prepared, ledger)}
    elif by := carrying.carrier(prepared, ledger):
        said = {"job": carrying.carry(workspace, ledger, by)}
    else:
        said = {"pid": running.start_in_background(workspace, ledger)}
    if as_json:
        show.as_json({"run_id": run_id, "trials": trials, **said})
        return
    click.echo(run_id)
    show.note(f"submitted {show.count(said.get('under_way', trials), 'trial')}; watch:  bench status {run_id} --watch")
    if (left := trials - said.get("under_way", trials)) > 0:
        show.note(f"{show.count(left, 'trial')} are done, or follow with the next:  bench collect {run_id}")
