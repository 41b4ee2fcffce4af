"""Fetch data that experiments need, checked by digest; or all that a scenario needs from outside."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Fetchable, Workspace

_EXAMPLES = """\b
Examples:
  bench fetch              what can be fetched, and what is in the cache
  bench fetch NAME         download the data that an experiment declares under this name
  bench fetch -c SCENARIO.yaml --site meluxina      on a login node: data, packages; lists images that are missing
"""


@click.command(help=f"{__doc__} Without a name, list what can be fetched.\n\n{_EXAMPLES}")
@click.argument("names", nargs=-1)
@click.option(
    "-c", "--config", metavar="SCENARIO", type=click.Path(path_type=Path), help="Fetch all that this scenario needs."
)
@options.where_options
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, /, names: tuple[str, ...], config: Path | None, as_json: bool, **where: str | None
) -> None:
    workspace = options.workspace(ctx)
    if config is not None:
        if names:
            raise BenchError("give names of data, or a scenario, not both", "bench fetch -c SCENARIO.yaml")
        _fetch_for(workspace, config, where, as_json)
    elif names:
        _show_fetched(workspace.fetch(*names), as_json)
    else:
        _show_fetchable(workspace.fetchable(), as_json)


def _fetch_for(workspace: "Workspace", path: Path, where: dict[str, str | None], as_json: bool) -> None:
    brought = workspace.fetch_for(path, progress=screen.RunProgress(), **where)
    if as_json:
        screen.as_json({"brought": [str(item) for item in brought]})
        return
    for item in brought:
        click.echo(item)
    screen.note(f"nothing is missing; next:  bench submit -c {path}")


def _show_fetched(files: "list[Fetchable]", as_json: bool) -> None:
    if as_json:
        screen.as_json([item.to_dict() for item in files])
        return
    for item in files:
        click.echo(item.path)
        screen.note(item.summary())


def _show_fetchable(files: "list[Fetchable]", as_json: bool) -> None:
    if as_json:
        screen.as_json([item.to_dict() for item in files])
        return
    if not files:
        screen.note("no installed experiment declares data to download")
        return
    rows = [(item.name, item.experiment, _size(item), item.licence, item.sha256[:12], item.source) for item in files]
    screen.table(("data", "experiment", "here", "licence", "sha256", "source"), rows)
    screen.note("next:  bench fetch NAME")


def _size(item: "Fetchable") -> str:
    from benchhouse.schema.quantities import show_bytes

    return "no" if item.size is None else show_bytes(item.size)
