"""Look after the curated tables: rebuild, schema, prune."""

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


@command.command(
    help="""Take away what retention.yaml says is too old: samples of monitors (hot), rows of tables (warm), evidence
    (cold). What a claim in claims/ is made of stays.

    \b
    Examples:
      bench warehouse prune --dry-run
      bench warehouse prune
      bench warehouse prune --dry-run --json
    """
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.json_option
@click.pass_context
def prune(ctx: click.Context, dry_run: bool, as_json: bool) -> None:
    from benchhouse.api import tables
    from benchhouse.schema.quantities import show_bytes

    workspace = options.workspace(ctx)
    done = tables.prune(workspace, dry_run=dry_run)
    if as_json:
        show.as_json(done.model_dump())
        return
    if done.gone:
        rows = [(one.tier, one.what, f"{one.age_days:g}", one.trials or "", show_bytes(one.size)) for one in done.gone]
        show.table(("tier", "what", "days old", "trials", "size"), rows)
    for line in done.pinned:
        show.note(f"pinned: {line}")
    total = show_bytes(sum(one.size for one in done.gone))
    show.note(f"{show.count(len(done.gone), 'thing')} {'would go' if dry_run else 'gone'} ({total})")
    if not (workspace.root / "retention.yaml").is_file():
        show.note("there is no retention.yaml: these are the usual ages (hot 30d, warm 180d, cold 730d)")
    show.note("do it: bench warehouse prune" if dry_run and done.gone else "what is left: bench status")
