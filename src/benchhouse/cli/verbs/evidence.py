"""Keep evidence in a store, on S3 or in a folder: push, pull, verify. Content-addressed; nothing is ever removed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.stores import Carried

_STORE = """STORE is s3://bucket/prefix or a folder. Who asks is said by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""


@click.group(
    help=__doc__
    + examples(
        "bench evidence push s3://team-bench/evidence --run @last", "bench evidence verify /mnt/archive/evidence"
    )
)
def command() -> None:
    pass


def _store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.argument("store"),
        click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run; repeatable."),
        click.option(
            "--endpoint", metavar="URL", default="", help="Any S3 server; else AWS_ENDPOINT_URL, else Amazon's."
        ),
        options.json_option,
    )[::-1]:
        function = option(function)
    return function


@command.command(
    help=f"""Put sealed trials into a store. Each is checked first, each new object is read back; safe to repeat.

    \b
    Examples:
      bench evidence push s3://team-bench/evidence
      bench evidence push s3://team-bench/evidence --run @last --dry-run
      bench evidence push /mnt/archive/evidence

    {_STORE}
    """
)
@_store_options
@click.option("--create", is_flag=True, help="Make the bucket if it is not there.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_context
def push(ctx: click.Context, /, store: str, runs: tuple[str, ...], as_json: bool, **how: Any) -> int:
    carried = options.workspace(ctx).evidence.push(store, runs, each=None if as_json else _say, **how)
    return _tell(carried, as_json, how["dry_run"], f"bench evidence verify {store}")


@command.command(
    help=f"""Bring trials of a store into this workspace, every file checked by its digest, and collect them.

    \b
    Examples:
      bench evidence pull s3://team-bench/evidence --run 20260301-120000-000abcd
      bench evidence pull s3://team-bench/evidence --dry-run
      bench evidence pull /mnt/archive/evidence

    {_STORE}
    """
)
@_store_options
@click.option("--dry-run", is_flag=True, help="Only say what would come.")
@click.pass_context
def pull(ctx: click.Context, /, store: str, runs: tuple[str, ...], as_json: bool, **how: Any) -> int:
    carried = options.workspace(ctx).evidence.pull(store, runs, each=None if as_json else _say, **how)
    return _tell(carried, as_json, how["dry_run"], "bench report RUN")


@command.command(
    help=f"""Hash every object of a store: one flipped byte is found and named.

    \b
    Examples:
      bench evidence verify s3://team-bench/evidence
      bench evidence verify s3://team-bench/evidence --run 20260301-120000-000abcd --json

    {_STORE}
    """
)
@_store_options
@click.pass_context
def verify(ctx: click.Context, /, store: str, runs: tuple[str, ...], as_json: bool, endpoint: str) -> int:
    from benchhouse.schema.quantities import show_bytes

    check = options.workspace(ctx).evidence.verify(store, runs, endpoint=endpoint)
    if as_json:
        damage = [item.model_dump() for item in check.damage]
        screen.as_json({"checked": check.checked, "bytes": check.bytes, "damage": damage})
    else:
        for item in check.damage:
            click.echo(f"{item.trial}/{item.file}: {item.kind} ({item.detail})")
        verdict = screen.count(len(check.damage), "fault") if check.damage else "all as sealed"
        click.echo(f"{screen.count(check.checked, 'trial')}, {show_bytes(check.bytes)} checked: {verdict}")
    return Exit.TRIAL_FAILED if check.damage else Exit.GOOD


def _say(carried: "Carried") -> None:
    if carried.what == "refused":
        click.echo(f"{carried.folder}: refused: {carried.reason}")
    elif carried.what == "new":
        from benchhouse.schema.quantities import show_bytes

        click.echo(f"{carried.folder}: {screen.count(carried.objects, 'object')}, {show_bytes(carried.size)}")


def _tell(carried: "list[Carried]", as_json: bool, dry_run: bool, then: str) -> int:
    counts = {what: sum(one.what == what for one in carried) for what in ("new", "same", "refused")}
    unread = [one for one in carried if one.what == "new" and one.reason]
    if as_json:
        screen.as_json({"dry_run": dry_run, "trials": [one.model_dump() for one in carried]})
    else:
        words = f"{screen.count(counts['new'], 'trial')} {'would go' if dry_run else 'moved, every object checked'}"
        rest = [f", {counts['same']} there already"] if counts["same"] else []
        rest += [f", {counts['refused']} refused"] if counts["refused"] else []
        screen.note(words + "".join(rest))
        for one in unread:
            screen.note(f"in no table: {one.folder}: {one.reason}")
        screen.note("nothing was written" if dry_run else f"next:  {then}")
    return Exit.TRIAL_FAILED if counts["refused"] or unread else Exit.GOOD
