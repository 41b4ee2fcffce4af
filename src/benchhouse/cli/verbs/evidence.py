"""Keep evidence in a store, on S3 or in a folder: push, pull, verify. Content-addressed; nothing is ever removed."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.stores import Carried, StoreCheck

_MOST_UNREAD = 5
_STORE = "STORE is s3://bucket/prefix or a folder. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."

command = commands.group(
    __doc__, "bench evidence push s3://team-bench/evidence --run @last", "bench evidence verify /mnt/archive/evidence"
)
_store_options = commands.together(
    click.argument("store"),
    commands.runs_option,
    click.option("--endpoint", metavar="URL", default="", help="Any S3 server; else AWS_ENDPOINT_URL, else Amazon's."),
)


@command.verb(
    "Put sealed trials into a store. Each is checked first, each new object is read back; safe to repeat.\n\n" + _STORE,
    "bench evidence push s3://team-bench/evidence",
    "bench evidence push s3://team-bench/evidence --run @last --dry-run",
    "bench evidence push /mnt/archive/evidence",
)
@_store_options
@click.option("--create", is_flag=True, help="Make the bucket if it is not there.")
@commands.dry_run_option
def push(workspace: Workspace, /, store: str, runs: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    carried = workspace.evidence.push(store, runs, each=None if as_json else _show_trial, **settings)
    return _show_all(carried, as_json, settings["dry_run"], f"bench evidence verify {store}")


@command.verb(
    "Bring trials of a store into this workspace, every file checked by its digest, and collect them.\n\n" + _STORE,
    "bench evidence pull s3://team-bench/evidence --run 20260301-120000-000abcd",
    "bench evidence pull s3://team-bench/evidence --dry-run",
    "bench evidence pull /mnt/archive/evidence",
)
@_store_options
@commands.dry_run_option
def pull(workspace: Workspace, /, store: str, runs: tuple[str, ...], as_json: bool, **settings: Any) -> int:
    carried = workspace.evidence.pull(store, runs, each=None if as_json else _show_trial, **settings)
    return _show_all(carried, as_json, settings["dry_run"], "bench report RUN")


@command.verb(
    "Hash every object of a store: one flipped byte is found and named.\n\n" + _STORE,
    "bench evidence verify s3://team-bench/evidence",
    "bench evidence verify s3://team-bench/evidence --run 20260301-120000-000abcd --json",
)
@_store_options
def verify(workspace: Workspace, store: str, runs: tuple[str, ...], endpoint: str, as_json: bool) -> int:
    check = workspace.evidence.verify(store, runs, endpoint=endpoint)
    if as_json:
        screen.as_json(check)
    else:
        _show_check(check, f"bench evidence verify {store}")
    return Exit.TRIAL_FAILED if check.damage else Exit.GOOD


def _show_check(check: "StoreCheck", again: str) -> None:
    """Print all damage, and the first objects that could not be read, which may be intact."""
    unread = [item for item in check.damage if item.kind == "unreadable"]
    faults = [item for item in check.damage if item.kind != "unreadable"]
    for item in [*faults, *unread[:_MOST_UNREAD]]:
        click.echo(f"{item.trial}/{item.file}: {item.kind} ({item.detail})")
    if len(unread) > _MOST_UNREAD:
        click.echo(f"and {len(unread) - _MOST_UNREAD:,} more that could not be read: --json names them all")
    parts = [screen.count(len(faults), "fault")] if faults else []
    parts += [f"{screen.count(len(unread), 'object')} could not be read"] if unread else []
    verdict = ", ".join(parts) or "all as sealed"
    click.echo(f"{screen.count(check.checked, 'trial')}, {screen.size(check.bytes)} checked: {verdict}")
    if unread:
        screen.note(f"again when the store is well:  {again}")


def _show_trial(carried: "Carried") -> None:
    if carried.what == "refused":
        click.echo(f"{carried.folder}: refused: {carried.reason}")
    elif carried.what == "new":
        click.echo(f"{carried.folder}: {screen.count(carried.objects, 'object')}, {screen.size(carried.size)}")


def _show_all(carried: "list[Carried]", as_json: bool, dry_run: bool, then: str) -> int:
    unread = [item for item in carried if item.what == "new" and item.reason]
    if as_json:
        screen.as_json({"dry_run": dry_run, "trials": carried})
    else:
        note_transfer("trial", "object", [item.what for item in carried], dry_run)
        for item in unread:
            screen.note(f"in no table: {item.folder}: {item.reason}")
        screen.note("nothing was written" if dry_run else f"next:  {then}")
    return Exit.TRIAL_FAILED if unread or any(item.what == "refused" for item in carried) else Exit.GOOD


def note_transfer(noun: str, part: str, states: list[str], dry_run: bool) -> None:
    """Print how many were moved, were there already, and were refused; `part` is what was checked of each."""
    refused, moved = states.count("refused"), states.count("new") + states.count("renewed")
    same = len(states) - moved - refused
    text = f"{screen.count(moved, noun)} {'would be moved' if dry_run else f'moved, every {part} checked'}"
    screen.note(text + (f", {same} there already" if same else "") + (f", {refused} refused" if refused else ""))
