"""Start a scenario in the background and return at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.execution import SubmittedRun


@commands.verb(
    __doc__,
    "bench submit scenarios/first.yaml   prints the run's id",
    "bench submit scenarios/first.yaml --executor slurm   one job array",
)
@commands.scenario_or_config
@click.option("--new", is_flag=True, help="Start a new run even if one of the same plan is unfinished.")
@commands.where_options
@commands.contract_option
def command(
    workspace: Workspace, /, scenario: Path | None, config: Path | None, new: bool, as_json: bool, **where: Any
) -> None:
    path = scenario or config
    if path is None:
        raise BenchError("give a scenario file", "bench submit -c SCENARIO.yaml")
    show_submitted(workspace.submit(path, progress=screen.RunProgress(), new=new, **where), as_json)


def show_submitted(submitted: "SubmittedRun", as_json: bool) -> None:
    """Print the id of the run, and how many of its trials are under way."""
    if as_json:
        screen.as_json({key: value for key, value in screen.plain(submitted).items() if value is not None})
        return
    run_id, under_way = submitted.run_id, submitted.trials if submitted.under_way is None else submitted.under_way
    click.echo(run_id)
    screen.note(f"submitted {screen.count(under_way, 'trial')}; watch:  bench status {run_id} --watch")
    if (left := submitted.trials - under_way) > 0:
        screen.note(f"{screen.count(left, 'trial')} are done, or follow with the next:  bench collect {run_id}")
