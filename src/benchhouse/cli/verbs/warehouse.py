"""Look after the curated tables: rebuild, schema, prune; share them: push, pull."""

import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.stores import Moved

_SHOWN = 20


@click.group(
    help=__doc__
    + examples("bench warehouse schema trial_fact", "bench warehouse prune --dry-run", "bench warehouse rebuild")
)
def command() -> None:
    pass


@command.command(
    help="Make all tables anew from the evidence; the bytes come out equal. Trials without good evidence leave them."
    "\n\nSays how many sealed folders there are and how many were read, whichever version wrote them; exit code 1 "
    "where one was not." + examples("bench warehouse rebuild")
)
@options.json_option
@click.pass_context
def rebuild(ctx: click.Context, as_json: bool) -> int:
    tables = options.workspace(ctx).warehouse
    rebuilt = tables.rebuild(lambda done, total, run_id: screen.note(f"{done}/{total} {run_id}"))
    code = Exit.TRIAL_FAILED if rebuilt.unread else Exit.GOOD
    if as_json:
        screen.as_json(asdict(rebuilt))
        return code
    read = f"{rebuilt.sealed - len(rebuilt.unread)} of {screen.count(rebuilt.sealed, 'sealed folder')} read"
    click.echo(
        f"{screen.count(rebuilt.runs, 'run')}, {screen.count(rebuilt.trials, 'trial')}, {rebuilt.rows} rows; {read}"
    )
    known = {*rebuilt.dropped, *rebuilt.unread}
    for line in rebuilt.skipped:
        if line not in known:
            screen.note(f"skipped: {line}")
    _name_some("dropped: {} left the tables, without evidence that could be read", rebuilt.dropped)
    _name_some("NOT READ: {} sealed, and in no table", [one for one in rebuilt.unread if one not in rebuilt.dropped])
    if code:
        screen.note(f"whether it is whole:  bench verify {_folder(rebuilt.unread[0])}")
    else:
        screen.note(f"next:  bench {'verify --all' if rebuilt.trials else 'status'}")
    return code


def _name_some(words: str, lines: list[str]) -> None:
    """Say how many trials these lines are about, and which; of very many only the first."""
    if not lines:
        return
    screen.note(words.format(screen.count(len(lines), "trial")))
    for line in lines[:_SHOWN]:
        screen.note(f"  {line}")
    if len(lines) > _SHOWN:
        screen.note(f"  and {len(lines) - _SHOWN} more: --json names them all")


def _folder(line: str) -> str:
    return shlex.quote(line.partition(": ")[0])


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
@click.pass_context
def schema(ctx: click.Context, table: str | None, as_json: bool) -> None:
    tables = options.workspace(ctx).warehouse.schema(table)
    if as_json:
        documents = screen.plain(tables)
        screen.as_json({document.pop("name"): document for document in documents})
        return
    for info in tables:
        click.echo(f"{info.name}: {info.description}")
        rows = [(column.name, column.type, column.meaning) for column in info.columns]
        screen.table(("column", "type", "meaning"), rows)
    screen.note(f'ask: bench query "FROM {table or "benchmark_run_fact"}"')


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
    from benchhouse.schema.quantities import show_bytes

    workspace = options.workspace(ctx)
    done = workspace.warehouse.prune(dry_run=dry_run)
    if as_json:
        screen.as_json(done.model_dump())
        return
    if done.gone:
        rows = [(one.tier, one.what, f"{one.age_days:g}", one.trials or "", show_bytes(one.size)) for one in done.gone]
        screen.table(("tier", "what", "days old", "trials", "size"), rows)
    for line in done.pinned:
        screen.note(f"pinned: {line}")
    total = show_bytes(sum(one.size for one in done.gone))
    screen.note(f"{screen.count(len(done.gone), 'thing')} {'would go' if dry_run else 'gone'} ({total})")
    if not (workspace.root / "retention.yaml").is_file():
        screen.note("there is no retention.yaml: these are the usual ages (hot 30d, warm 180d, cold 730d)")
    screen.note("do it: bench warehouse prune" if dry_run and done.gone else "what is left: bench status")


_ADDRESS = """It is postgresql://user@host/database, clickhouse:FOLDER, or the folder of another workspace. A
password is named by its variable, 'postgresql://user:$NAME@host/database', or stands in PGPASSWORD; '$NAME' alone is a
variable with the whole address."""


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run; repeatable."),
        click.option("--dry-run", is_flag=True, help="Only say what would go."),
        click.option("--replace", is_flag=True, help="Also where trials would be lost that are only there."),
        options.json_option,
        click.pass_context,
    )[::-1]:
        function = option(function)
    return function


@command.command(
    help=f"""Bring runs to a shared engine: their tables, each run whole or not at all; what is there already stays.

    \b
    Examples:
      bench warehouse push postgresql://ada@db.example.org/bench
      bench warehouse push clickhouse:/data/ch --run @last
      bench warehouse push ../team --dry-run

    {_ADDRESS}
    """
)
@click.argument("to")
@_moving
def push(ctx: click.Context, to: str, runs: tuple[str, ...], as_json: bool, **how: Any) -> int:
    say = None if as_json else _say_moved
    moved = options.workspace(ctx).warehouse.push(to, runs, say=say, **how)
    return _tell(moved, as_json, how["dry_run"], f"bench query --engine {_quoted(to)} SQL")


@command.command(
    help=f"""Bring runs of a shared engine into the tables of this workspace. Their evidence stays where it is.

    \b
    Examples:
      bench warehouse pull postgresql://ada@db.example.org/bench --dry-run
      bench warehouse pull clickhouse:/data/ch --run 20260301-120000-000abcd
      bench warehouse pull ../team

    {_ADDRESS}
    """
)
@click.argument("origin", metavar="FROM")
@_moving
def pull(ctx: click.Context, origin: str, runs: tuple[str, ...], as_json: bool, **how: Any) -> int:
    say = None if as_json else _say_moved
    moved = options.workspace(ctx).warehouse.pull(origin, runs, say=say, **how)
    return _tell(moved, as_json, how["dry_run"], "bench status")


def _say_moved(moved: "Moved") -> None:
    if moved.what in ("new", "renewed"):
        click.echo(f"{moved.run_id}: {moved.what}, {screen.count(moved.rows, 'row')} in {len(moved.tables)} tables")
    elif moved.what == "refused":
        click.echo(f"{moved.run_id}: refused: {moved.reason}")


def _tell(moved: "list[Moved]", as_json: bool, dry_run: bool, then: str) -> int:
    refused = sum(one.what == "refused" for one in moved)
    if as_json:
        screen.as_json({"dry_run": dry_run, "runs": [one.model_dump() for one in moved]})
    else:
        gone = sum(one.what in ("new", "renewed") for one in moved)
        words = f"{screen.count(gone, 'run')} {'would go' if dry_run else 'moved, every digest checked'}"
        rest = len(moved) - gone - refused
        screen.note(words + (f", {rest} there already" if rest else "") + (f", {refused} refused" if refused else ""))
        screen.note("nothing was written" if dry_run else f"next:  {then}")
    return Exit.TRIAL_FAILED if refused else Exit.GOOD


def _quoted(address: str) -> str:
    return f"'{address}'" if "$" in address else address
