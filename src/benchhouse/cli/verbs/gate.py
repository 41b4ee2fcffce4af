"""Judge a change for a pipeline: worse by more than is tolerated, not worse, or undecided."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.gates import Gate


@commands.verb(
    f"{__doc__}\n\nThe experiment's primary metrics decide, or those that --metric names. Exit code 0: the "
    "intervals exclude a worsening of --mde. 3: a regression. 6: these repetitions can't tell; how many would is "
    "reported. 7: there is no run to compare with yet.",
    "bench gate @last-1..@last --mde 3%",
    "bench gate --baseline s3://team-bench/main --if-no-baseline pass   against the newest run in a store",
    "bench gate main..@last --mde 5% --metric latency.p99   main: the last run of a scenario of that name",
)
@click.argument("runs", metavar="[BASE..NEW]", default="@last")
@click.option("--baseline", metavar="STORE", help="Compare NEW (@last, if not given) with the newest run of its "
              "scenario in this store, a folder or s3://bucket/prefix: see bench evidence push.")  # fmt: skip
@click.option("--endpoint", metavar="URL", default="", help="Of the store; else AWS_ENDPOINT_URL, else Amazon's.")
@click.option("--if-no-baseline", type=click.Choice(["fail", "pass"]), default="fail", show_default=True,
              help="Whether a first run, with nothing to compare with, fails (7) or passes (0).")  # fmt: skip
@click.option(
    "--mde", type=commands.SHARE, default="3%", show_default=True, help="The smallest worsening that matters."
)
@click.option("--metric", "metrics", multiple=True, metavar="NAME",
              help="Judge this metric, or one statistic of it: latency.p99; may be repeated.")  # fmt: skip
@commands.confidence_option
@commands.outliers_option
@click.option("--undecided", type=click.Choice(["fail", "pass"]), default="fail", show_default=True,
              help="Whether \"can't tell\" fails the gate (6) or passes it (0).")  # fmt: skip
def command(
    workspace: Workspace, /, runs: str, baseline: str | None, if_no_baseline: str, undecided: str, as_json: bool,
    **rules: Any,
) -> int:  # fmt: skip
    from benchhouse.api.gates import NoBaselineError

    base, dots, new = runs.partition("..") if ".." in runs else ("", "", runs)
    if not new or bool(base and dots) == bool(baseline):
        raise click.UsageError(f"{runs!r}: give BASE..NEW, for example @last-1..@last; or NEW and --baseline STORE")
    try:
        gate = workspace.gate(base or None, new, baseline=baseline, **rules)
    except NoBaselineError as error:
        if if_no_baseline == "fail":
            raise
        if as_json:
            screen.as_json({"judgement": "no baseline", "message": error.message, "hint": error.hint, "exit_code": 0})
        else:
            click.echo("gate: no baseline yet, passed")
            screen.note(f"{error.message}\n{error.hint}")
        return Exit.GOOD
    code = gate.exit_code
    if code == Exit.UNDECIDED and undecided == "pass":
        code = Exit.GOOD
    if as_json:
        screen.as_json(gate.as_dict() | {"exit_code": int(code)})
    else:
        _show(gate)
    return code


def _show(gate: "Gate") -> None:
    table = gate.table
    click.echo(f"BASE  {table.a}\nNEW   {table.b}")
    rows = [
        (item.row.point, screen.titled(item.row.name_marked, item.row.unit), item.row.change_text,
         screen.percent(item.ruling.visible, signed=False), f"{item.row.n_a}/{item.row.n_b}", item.ruling.judgement)
        for item in gate.rows
    ]  # fmt: skip
    columns = ("point", "metric", "change, interval", "can see", "n", "judgement")
    screen.table(
        columns, rows, right=("can see",), whole=("metric", "can see", "n", "judgement"), spare=("n", "can see")
    )
    for point in table.only_a:
        screen.note(f"not in NEW, so it is not judged: {point}")
    for figure in table.invalid_metrics:
        screen.note(f"not judged: {figure}")
    for difference in table.differences:
        screen.note(f"differs: {difference.dimension}: {difference.a} | {difference.b}")
    for note in table.notes:
        screen.note(note)
    if gate.needed:
        screen.note(f"to see a worsening of {gate.mde:.2%} 4 times in 5: repetitions: {gate.needed} on both sides")
    screen.note(gate.selftest)
    click.echo(f"gate: {gate.judgement} (worse by {gate.mde:.2%} or more is what matters)")
    screen.note(f"look closer:  bench compare {table.a} {table.b}")
