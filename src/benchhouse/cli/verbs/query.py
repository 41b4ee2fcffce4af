"""Ask the warehouse in SQL (DuckDB, read-only)."""

import csv
import sys

import click

from benchhouse.cli import options, show


@click.command(
    help=f"{__doc__}\n\nTables: benchmark_run_fact, trial_fact, measurement_fact, workload_dim, artifact_lineage_dim."
)
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, sql: str, as_csv: bool, as_json: bool) -> None:
    from benchhouse.api import looking

    result = looking.query(options.workspace(ctx), sql)
    if as_json:
        show.as_json(
            {"rows": result.dicts(), "query": result.spec.model_dump(), "query_spec_digest": result.spec.digest()}
        )
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    else:
        show.table(result.columns, result.rows)
        show.note(show.count(len(result.rows), "row"))
