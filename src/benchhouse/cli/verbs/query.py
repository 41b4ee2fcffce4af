"""Ask the warehouse in SQL (DuckDB, read-only)."""

import csv
import sys

import click

from benchhouse.cli import options, show

_MOST_ROWS = 200
_EXAMPLES = """\b
Examples:
  bench query "SELECT run_id, executor, trials, failed FROM benchmark_run_fact"
  bench query --csv "SELECT target_name, point, qps, recall FROM vector_outcome_fact"
  bench query --engine postgresql://ada@db.example.org/bench "SELECT count(*) FROM trial_fact"
  bench warehouse schema                      the tables, column by column
"""


class Query(click.Command):
    """SQL may begin with a comment, `-- why`, which is not an option though it looks like one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        comments = [arg for arg in args if arg.startswith("--") and any(letter.isspace() for letter in arg)]
        if comments and "--" not in args:
            args = [*(arg for arg in args if arg not in comments), "--", *comments]
        return super().parse_args(ctx, args)


@click.command(
    cls=Query,
    help=f"{__doc__}\n\n{_EXAMPLES}",
)
@click.argument("sql")
@click.option(
    "--engine", metavar="ADDRESS", envvar="BENCH_ENGINE",
    help="Ask there, in its dialect: postgresql://..., clickhouse:FOLDER, or another workspace's folder.",
)  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, sql: str, engine: str | None, as_csv: bool, as_json: bool) -> None:
    if engine:
        from benchhouse.api import sharing

        result = sharing.query(engine, sql)
    else:
        from benchhouse.api.querying import query

        result = query(options.workspace(ctx), sql)
    if as_json:
        show.as_json(
            {"rows": result.dicts(), "query": result.spec.model_dump(), "query_spec_digest": result.spec.digest()}
        )
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    else:
        show.table(result.columns, result.rows[:_MOST_ROWS])
        more = len(result.rows) - _MOST_ROWS
        cut = f"; and {more:,} more: --csv or --json prints all" if more > 0 else ""
        show.note(show.count(len(result.rows), "row") + cut)
