"""Show a metric over all runs: where its level changed, by how much, and what else changed there."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit


@commands.verb(
    f"{__doc__}\n\nCASE is a scenario (where it has one point), scenario/point, or the id of a case; without "
    "it, the cases there are. Exit code 3 where new runs are worse than the accepted baseline.",
    "bench history",
    "bench history first/name=short",
    "bench history first/name=short --metric cpu_ms --stat p90",
    "bench history --json",
)
@click.argument("case", required=False)
@commands.metric_options
@click.option("--floor", type=commands.SHARE, default="1%", show_default=True, help="Smaller changes are not reported.")
def command(
    workspace: Workspace, case: str | None, metric: str | None, stat: str | None, floor: float, as_json: bool
) -> int:
    if case is None:
        cases = workspace.cases()
        if as_json:
            screen.as_json(cases)
            return Exit.GOOD
        rows = [(item.case, f"{item.experiment} {item.version}", item.runs) for item in cases]
        screen.table(("case", "experiment", "runs"), rows, right=("runs",))
        screen.note("next:  bench history CASE")
        return Exit.GOOD
    history = workspace.history(metric, case, stat=stat, floor=floor)
    if as_json:
        screen.as_json(history.to_dict())
    else:
        history.show()
    return history.exit_code
