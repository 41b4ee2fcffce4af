"""Look after the curated tables: rebuild, schema."""

from dataclasses import asdict

import click

from benchhouse.cli import options, show

_SHOWN = 20


@click.group(help=__doc__)
def command() -> None:
    pass


@command.command(
    help="Make all tables anew from the evidence; the bytes come out equal. Trials without good evidence leave them."
)
@options.json_option
@click.pass_context
def rebuild(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import looking

    rebuilt = looking.rebuild(options.workspace(ctx), lambda done, total, run: show.note(f"{done}/{total} {run}"))
    if as_json:
        show.as_json(asdict(rebuilt))
        return
    click.echo(f"{show.count(rebuilt.runs, 'run')}, {show.count(rebuilt.trials, 'trial')}, {rebuilt.rows} rows")
    for line in rebuilt.skipped:
        show.note(f"skipped: {line}")
    if rebuilt.dropped:
        show.note(f"dropped: {show.count(len(rebuilt.dropped), 'trial')} without good evidence left the tables")
        for line in rebuilt.dropped[:_SHOWN]:
            show.note(f"  {line}")
        if len(rebuilt.dropped) > _SHOWN:
            show.note(f"  and {len(rebuilt.dropped) - _SHOWN} more: --json names them all")


@command.command(
    help="""The tables, column by column; all, or TABLE alone.

    \b
    Examples:
      bench warehouse schema
      bench warehouse schema serving_outcome_fact
      bench warehouse schema --json
    """
)
@click.argument("table", required=False)
@options.json_option
def schema(table: str | None, as_json: bool) -> None:
    from benchhouse.api import tables

    found = tables.describe_tables(table)
    if as_json:
        show.as_json(found)
        return
    for name, one in found.items():
        click.echo(f"{name}: {one['description']}")
        show.table(
            ("column", "type", "meaning"), [(item["name"], item["type"], item["meaning"]) for item in one["columns"]]
        )
    show.note(f'ask: bench query "FROM {table or "benchmark_run_fact"}"')
