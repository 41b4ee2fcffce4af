"""Evaluations that were started, and the state of their runs."""

from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

if TYPE_CHECKING:
    from benchhouse.api.evaluation import Evaluation


@commands.verb(
    f"{__doc__}\n\nAlso those of a server, an agent or a comment.",
    "bench evaluations   all of them, the newest first",
    "bench evaluations @last   each run of one",
    "bench evaluations 20261119-0212 --stop   end it, and the run that is under way",
)
@click.argument("evaluation", required=False)
@click.option("--stop", is_flag=True, help="End it; carry on by: bench evaluate --resume EVALUATION.")
def command(workspace: Workspace, /, evaluation: str | None, stop: bool, as_json: bool) -> None:
    if stop and not evaluation:
        raise click.UsageError("--stop needs EVALUATION")
    if stop and evaluation:
        stopped = workspace.evaluations.stop(evaluation)
        if as_json:
            screen.as_json(stopped)
            return
        click.echo(f"evaluation {stopped.evaluation_id} is stopped; what it has measured is kept")
        screen.note(f"carry on:  bench evaluate --resume {stopped.evaluation_id}")
        return
    answer = workspace.evaluations[evaluation] if evaluation else workspace.evaluations.list()
    if as_json:
        screen.as_json(answer)
    elif isinstance(answer, list):
        rows = [_row(item) for item in answer]
        screen.table(("evaluation", "asked", "by", "state", "runs"), rows, whole=("evaluation",))
    else:
        _show(answer)


def _row(item: "Evaluation") -> tuple[str, ...]:
    done = sum(run.state == "complete" for run in item.runs)
    return item.evaluation_id, item.asked, item.submitter, item.state, f"{done} of {len(item.runs)} complete"


def _show(item: "Evaluation") -> None:
    screen.note(f"evaluation {item.evaluation_id} ({item.asked}) of {item.submitter}: {item.state}")
    rows = [(run.benchmark, run.run_id, run.state, screen.outcomes(run.outcomes), run.why) for run in item.runs]
    screen.table(("benchmark", "run", "state", "trials", "why"), rows, whole=("benchmark", "run"))
    if item.state != "running" and item.unfinished:
        screen.note(f"carry on:  bench evaluate --resume {item.evaluation_id}")
