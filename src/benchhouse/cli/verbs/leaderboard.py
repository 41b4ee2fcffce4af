"""Rank targets on a logical benchmark: over all results of this workspace."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.packages import Board, Leaderboard, LogicalSummary


@commands.verb(
    f"{__doc__}\n\nWhatever experiment measured them: its bindings map their inputs and metrics. A rank is one "
    "and the number of targets that are surely better, after correction for many comparisons; whom the data don't tell "
    "apart share it. Without ID, list the logical benchmarks.",
    "bench leaderboard",
    "bench leaderboard inference_serving",
    "bench leaderboard inference_serving --where workload=heavy --json",
)
@click.argument("benchmark", metavar="ID", required=False)
@commands.where_option
@click.option("--experiment", metavar="NAME", help="Only what this one of the bound experiments measured.")
@commands.nexus_option
@commands.confidence_option
def command(
    workspace: Workspace, /, benchmark: str | None, conditions: tuple[str, ...], as_json: bool, **settings: Any
) -> int:
    if benchmark is None:
        return _list(workspace.leaderboards.list(nexus=settings["nexus"]), as_json)
    ranking = workspace.leaderboards.rank(benchmark, where=commands.pairs(conditions, "--where"), **settings)
    if as_json:
        screen.as_json(ranking.as_dict())
    else:
        _show(ranking)
    return Exit.BAD_INPUT if any(board.refused for board in ranking.boards) else Exit.GOOD


def _list(listed: "list[LogicalSummary]", as_json: bool) -> int:
    broken = [item for item in listed if item.broken]
    code = Exit.BAD_INPUT if broken else Exit.GOOD
    if as_json:
        screen.as_json(listed)
        return code
    rows = [
        (item.benchmark, item.target, ", ".join(item.properties), ", ".join(item.metrics), ", ".join(item.experiments))
        for item in listed
        if not item.broken
    ]
    if rows:
        screen.table(("logical benchmark", "target", "properties", "metrics", "experiments"), rows)
    for item in broken:
        screen.note(f"broken: {item.broken}")
    if not listed:
        screen.note("none; a logical benchmark is a file benchmarks/ID.yaml with `logicalBenchmark:` and `bindings:`")
    elif len(broken) < len(listed):
        screen.note("next:  bench leaderboard ID")
    return code


def _show(ranking: "Leaderboard") -> None:
    for board in ranking.boards:
        way = f", {board.direction} is better" if board.direction else ""
        unit = f", {board.unit}" if board.unit and board.unit != "1" else ""
        click.echo(f"{board.title}{unit}{way}")
        if board.refused:
            click.echo(screen.on_stdout(f"  refused: {board.refused}\n"))
            continue
        _table(ranking.target, board)
        click.echo(screen.on_stdout(f"{board.sentence}\n"))
    for line in ranking.notes:
        screen.note(line)
    choose = " --experiment NAME" if len(ranking.experiments) > 1 else ""
    run = f"bench run logical:{ranking.benchmark} --target NAME{choose} --repetitions 5"
    screen.note(f"next:  {run}" if ranking.boards else f"no result answers it yet. Measure one:  {run}")


def _table(target: str, board: "Board") -> None:
    rows = []
    for row in board.rows:
        standing, summary = row.standing, row.standing.summary
        spread = screen.spread_text(summary.mean, summary.stdev)
        mean = screen.number(summary.mean, summary.stdev) + (f" ± {spread}" if spread else "")
        rank, verdict = standing.rank or "-", screen.verdict(standing.verdict)
        median, experiments = screen.number(summary.p50, summary.stdev), ", ".join(row.experiments)
        rows.append((rank, standing.target, summary.n, mean, row.against_best, verdict, median, experiments))
    columns = ("rank", target, "n", "mean ± sd", "against the best", "verdict", "median", "measured by")
    whole = [column for column in columns if column not in (target, "measured by")]
    screen.table(columns, rows, right=("rank", "n", "mean ± sd", "median"), whole=whole, spare=columns[-2:])
