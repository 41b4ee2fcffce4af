"""Query the tables in SQL (DuckDB, read-only)."""

import csv
import sys

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb
from benchhouse.schema.csv_text import csv_cells


class QueryCommand(click.Command):
    """A command whose SQL may begin with a comment, `-- why`, which looks like an option but is not parsed as one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        comments = [arg for arg in args if arg.startswith("--") and any(letter.isspace() for letter in arg)]
        if comments and "--" not in args:
            args = [*(arg for arg in args if arg not in comments), "--", *comments]
        return super().parse_args(ctx, args)


@verb(
    __doc__,
    'bench query "SELECT run_id, executor, trials, failed FROM benchmark_run_fact"',
    'bench query --csv "SELECT target_name, point, qps, recall FROM vector_outcome_fact"',
    'bench query --engine postgresql://ada@db.example.org/bench "SELECT count(*) FROM trial_fact"',
    "bench warehouse schema   the tables, column by column",
    cls=QueryCommand,
)
@click.argument("sql")
@click.option(
    "--engine", metavar="ADDRESS", envvar="BENCH_ENGINE",
    help="Ask there, in its dialect: postgresql://..., clickhouse:FOLDER, or another workspace's folder.",
)  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def command(workspace: Workspace, sql: str, engine: str | None, as_csv: bool, as_json: bool) -> None:
    result = workspace.query(sql, engine=engine)
    if as_json:
        screen.as_json(result.to_dict())
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(csv_cells(result.columns))
        writer.writerows(map(csv_cells, result.rows))
    else:
        result.show()
