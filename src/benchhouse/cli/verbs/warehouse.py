"""Maintain the curated tables: rebuild, schema, prune; share them: push, pull."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.cli.verbs.evidence import note_transfer
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.stores import TransferredRun

_SHOWN = 20
_ADDRESS = (
    "It is postgresql://user@host/database, clickhouse:FOLDER, or the folder of another workspace. A password is named "
    "by its variable, 'postgresql://user:$NAME@host/database', or stands in PGPASSWORD; '$NAME' alone is a variable "
    "with the whole address."
)

command = commands.group(
    __doc__, "bench warehouse schema trial_fact", "bench warehouse prune --dry-run", "bench warehouse rebuild"
)
_transfer_options = commands.together(
    commands.runs_option,
    commands.dry_run_option,
    click.option("--replace", is_flag=True, help="Also where trials would be lost that are only there."),
)


@command.verb(
    "Make all tables anew from the evidence; the bytes come out equal. Trials without good evidence leave them."
    "\n\nSays how many sealed folders there are and how many were read, whichever version wrote them; exit code 1 "
    "where one was not.",
    "bench warehouse rebuild",
)
def rebuild(workspace: Workspace, as_json: bool) -> int:
    rebuilt = workspace.warehouse.rebuild(lambda done, total, run_id: screen.note(f"{done}/{total} {run_id}"))
    code = Exit.TRIAL_FAILED if rebuilt.unread else Exit.GOOD
    if as_json:
        screen.as_json(rebuilt)
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
    _name_some("NOT READ: {} sealed, and in no table", [line for line in rebuilt.unread if line not in rebuilt.dropped])
    if code:
        folder = rebuilt.unread[0].partition(": ")[0]
        screen.note(f"whether it is whole:  bench verify {shlex.quote(folder)}")
    else:
        screen.note(f"next:  bench {'verify --all' if rebuilt.trials else 'status'}")
    return code


def _name_some(title: str, lines: list[str]) -> None:
    """Print how many trials these lines are about, and which; at most the first few."""
    if not lines:
        return
    screen.note(title.format(screen.count(len(lines), "trial")))
    for line in lines[:_SHOWN]:
        screen.note(f"  {line}")
    if len(lines) > _SHOWN:
        screen.note(f"  and {len(lines) - _SHOWN} more: --json names them all")


@command.verb(
    "The tables, column by column; all, or TABLE alone.",
    "bench warehouse schema",
    "bench warehouse schema serving_outcome_fact",
    "bench warehouse schema --json",
)
@click.argument("table", required=False)
def schema(workspace: Workspace, table: str | None, as_json: bool) -> None:
    tables = workspace.warehouse.schema(table)
    if as_json:
        screen.as_json({document.pop("name"): document for document in screen.plain(tables)})
        return
    for info in tables:
        click.echo(f"{info.name}: {info.description}")
        rows = [(column.name, column.type, column.meaning) for column in info.columns]
        screen.table(("column", "type", "meaning"), rows)
    screen.note(f'ask: bench query "FROM {table or "benchmark_run_fact"}"')


@command.verb(
    "Remove what retention.yaml says is too old: samples of monitors (hot), rows of tables (warm), evidence (cold). "
    "What a claim in claims/ is made of stays.",
    "bench warehouse prune --dry-run",
    "bench warehouse prune",
    "bench warehouse prune --dry-run --json",
)
@commands.dry_run_option
def prune(workspace: Workspace, dry_run: bool, as_json: bool) -> None:
    pruning = workspace.warehouse.prune(dry_run=dry_run)
    if as_json:
        screen.as_json(pruning)
        return
    if pruning.gone:
        rows = [
            (item.tier, item.what, f"{item.age_days:g}", item.trials or "", screen.size(item.size))
            for item in pruning.gone
        ]
        screen.table(("tier", "what", "days old", "trials", "size"), rows)
    for line in pruning.pinned:
        screen.note(f"pinned: {line}")
    total = screen.size(sum(item.size for item in pruning.gone))
    screen.note(f"{screen.count(len(pruning.gone), 'item')} {'would be removed' if dry_run else 'removed'} ({total})")
    if not (workspace.root / "retention.yaml").is_file():
        screen.note("there is no retention.yaml: these are the usual ages (hot 30d, warm 180d, cold 730d)")
    screen.note("do it: bench warehouse prune" if dry_run and pruning.gone else "what is left: bench status")


@command.verb(
    "Bring runs to a shared engine: their tables, each run whole or not at all; what is there already stays."
    f"\n\n{_ADDRESS}",
    "bench warehouse push postgresql://ada@db.example.org/bench",
    "bench warehouse push clickhouse:/data/ch --run @last",
    "bench warehouse push ../team --dry-run",
)
@click.argument("to")
@_transfer_options
def push(workspace: Workspace, /, to: str, runs: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    moved = workspace.warehouse.push(to, runs, say=None if as_json else _show_run, **settings)
    address = f"'{to}'" if "$" in to else to
    return _show_all(moved, as_json, settings["dry_run"], f"bench query --engine {address} SQL")


@command.verb(
    f"Bring runs of a shared engine into the tables of this workspace. Their evidence stays where it is.\n\n{_ADDRESS}",
    "bench warehouse pull postgresql://ada@db.example.org/bench --dry-run",
    "bench warehouse pull clickhouse:/data/ch --run 20260301-120000-000abcd",
    "bench warehouse pull ../team",
)
@click.argument("origin", metavar="FROM")
@_transfer_options
def pull(workspace: Workspace, /, origin: str, runs: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    moved = workspace.warehouse.pull(origin, runs, say=None if as_json else _show_run, **settings)
    return _show_all(moved, as_json, settings["dry_run"], "bench status")


@command.verb(
    "Send what is not yet where workspace.yaml says: evidence to its store, tables to the shared engine. A run does so "
    "by itself when it ends; this goes on after a failure.",
    "bench warehouse share",
    "bench warehouse share --dry-run   what is not there yet",
)
@commands.dry_run_option
def share(workspace: Workspace, dry_run: bool, as_json: bool) -> int:
    places = workspace.warehouse.share(dry_run=dry_run)
    if as_json:
        screen.as_json({"dry_run": dry_run, "destinations": places})
    for place in [] if as_json else places:
        click.echo(place.summary + (f": {place.problem}" if place.problem else ""))
    if not as_json and any(place.missing for place in places):
        screen.note("next:  bench warehouse share")
    return Exit.TRIAL_FAILED if not dry_run and any(place.missing for place in places) else Exit.GOOD


def _show_run(moved: "TransferredRun") -> None:
    if moved.what in ("new", "renewed"):
        click.echo(f"{moved.run_id}: {moved.what}, {screen.count(moved.rows, 'row')} in {len(moved.tables)} tables")
    elif moved.what == "refused":
        click.echo(f"{moved.run_id}: refused: {moved.reason}")


def _show_all(moved: "list[TransferredRun]", as_json: bool, dry_run: bool, then: str) -> int:
    if as_json:
        screen.as_json({"dry_run": dry_run, "runs": moved})
    else:
        note_transfer("run", "digest", [item.what for item in moved], dry_run)
        screen.note("nothing was written" if dry_run else f"next:  {then}")
    return Exit.TRIAL_FAILED if any(item.what == "refused" for item in moved) else Exit.GOOD
