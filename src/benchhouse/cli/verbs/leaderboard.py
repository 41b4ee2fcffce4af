"""Rank targets on a logical benchmark: over all results of this workspace."""

from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.nexus.leaderboard import Board, Leaderboard

_ROOMY = 110
_SHORT = {
    "worse than the best": "worse",
    "not told from the best": "not told apart",
    "too few repetitions": "too few",
    "tied for best": "tied",
}


@click.command(
    help=f"{__doc__}\n\nWhatever experiment measured them: its bindings map their inputs and metrics. A rank is one "
    "and the number of targets that are surely better, after correction for many comparisons; whom the data don't tell "
    "apart share it. Without ID, the logical benchmarks there are.\n\n\b\n"
    "Examples:\n"
    "  bench leaderboard\n"
    "  bench leaderboard inference_serving\n"
    "  bench leaderboard inference_serving --where workload=heavy --json"
)
@click.argument("benchmark", metavar="ID", required=False)
@options.where_option
@click.option("--experiment", metavar="NAME", help="Only what this one of the bound experiments measured.")
@options.nexus_option
@click.option("--confidence", default=0.95, show_default=True, type=click.FloatRange(0.5, 0.9999))
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    benchmark: str | None,
    conditions: tuple[str, ...],
    experiment: str | None,
    nexus: str | None,
    confidence: float,
    as_json: bool,
) -> int:
    from benchhouse.nexus import leaderboard

    workspace = options.workspace(ctx).folder
    if benchmark is None:
        return _list(ctx, nexus, as_json)
    where = options.pairs(conditions, "--where")
    found = leaderboard.leaderboard(workspace, benchmark, where, nexus, confidence, experiment)
    if as_json:
        screen.as_json(found.as_dict())
    else:
        _show(found)
    return Exit.BAD_INPUT if any(board.refused for board in found.boards) else Exit.GOOD


def _list(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import logical

    listed = logical.benchmarks(options.workspace(ctx).folder, nexus)
    broken = [item for item in listed if item["broken"]]
    if as_json:
        screen.as_json(listed)
        return Exit.BAD_INPUT if broken else Exit.GOOD
    logical_table(listed)
    if not listed:
        screen.note("none; a logical benchmark is a file benchmarks/ID.yaml with `logicalBenchmark:` and `bindings:`")
    elif len(broken) < len(listed):
        screen.note("next:  bench leaderboard ID")
    return Exit.BAD_INPUT if broken else Exit.GOOD


def logical_table(listed: list[dict[str, object]]) -> None:
    """One line a logical benchmark; what can't be read is told below."""
    rows = [
        [", ".join(value) if isinstance(value := item[key], list) else value for key in _COLUMNS.values()]
        for item in listed
        if not item["broken"]
    ]
    if rows:
        screen.table(list(_COLUMNS), rows)
    for item in listed:
        if item["broken"]:
            screen.note(f"broken: {item['broken']}")


_COLUMNS = {
    "logical benchmark": "benchmark",
    "target": "target",
    "properties": "properties",
    "metrics": "metrics",
    "experiments": "experiments",
}


def _show(found: "Leaderboard") -> None:
    for board in found.boards:
        way = f", {board.direction} is better" if board.direction else ""
        unit = f", {board.unit}" if board.unit and board.unit != "1" else ""
        click.echo(f"{board.title}{unit}{way}")
        if board.refused:
            click.echo(screen.on_stdout(f"  refused: {board.refused}\n"))
            continue
        _table(found.target, board)
        click.echo(screen.on_stdout(f"{board.sentence}\n"))
    for line in found.notes:
        screen.note(line)
    choose = " --experiment NAME" if len(found.experiments) > 1 else ""
    run = f"bench run logical:{found.benchmark} --target NAME{choose} --repetitions 5"
    screen.note(f"next:  {run}" if found.boards else f"no result answers it yet. Measure one:  {run}")


def _table(target: str, board: "Board") -> None:
    from benchhouse.api.screen import number, spread_text
    from benchhouse.nexus.leaderboard import against_text

    short = _SHORT if screen.console().width < _ROOMY else {}
    rows = []
    for row in board.rows:
        told = row.standing.summary
        spread = spread_text(told.mean, told.stdev)
        rows.append(
            (
                "-" if row.standing.rank is None else str(row.standing.rank),
                row.standing.target,
                str(told.n),
                number(told.mean, told.stdev) + (f" ± {spread}" if spread else ""),
                against_text(row.standing.against_best),
                short.get(row.standing.verdict, row.standing.verdict),
                number(told.p50, told.stdev),
                ", ".join(row.experiments),
            )
        )
    columns = ("rank", target, "n", "mean ± sd", "against the best", "verdict", "median", "measured by")
    whole = [column for column in columns if column not in (target, "measured by")]
    screen.table(columns, rows, right=("rank", "n", "mean ± sd", "median"), whole=whole, spare=columns[-2:])
