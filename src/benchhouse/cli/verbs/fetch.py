"""Bring data that experiments need, checked by digest; or all that a scenario needs from outside."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.fetching import Fetchable

_EXAMPLES = """\b
Examples:
  bench fetch              what there is, and what is here already
  bench fetch NAME         download the data that an experiment declares under this name
  bench fetch -c SCENARIO.yaml --site meluxina      on a login node: data, packages; says what images are missing
"""


@click.command(help=f"{__doc__} Without a name, list what there is.\n\n{_EXAMPLES}")
@click.argument("names", nargs=-1)
@click.option("-c", "--config", metavar="SCENARIO", type=click.Path(path_type=Path), help="All that this one needs.")
@options.where_options
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, /, names: tuple[str, ...], config: Path | None, as_json: bool, **where: str | None
) -> None:
    from benchhouse.api import fetching

    if config is not None:
        if names:
            raise BenchError("give names of data, or a scenario, not both", "bench fetch -c SCENARIO.yaml")
        _fetch_for(ctx, config, where, as_json)
        return
    found = [item for name in names for item in fetching.fetch(name)] if names else fetching.fetchable()
    if as_json:
        show.as_json([_document(item) for item in found])
    elif names:
        for item in found:
            click.echo(item.path)
            show.note(item.words())
    elif not found:
        show.note("no installed experiment declares data to download")
    else:
        rows = [
            (item.name, item.experiment, _size(item), item.licence, item.sha256[:12], item.source) for item in found
        ]
        show.table(("data", "experiment", "here", "licence", "sha256", "source"), rows)
        show.note("next:  bench fetch NAME")


def _fetch_for(ctx: click.Context, path: Path, where: dict[str, str | None], as_json: bool) -> None:
    from benchhouse.api import fetching, planning

    workspace = options.workspace(ctx)
    prepared = planning.prepare(workspace, path, planning.Where(**where))
    brought = fetching.fetch_for(workspace, prepared, show.note)
    if as_json:
        show.as_json({"brought": [str(item) for item in brought]})
        return
    for item in brought:
        click.echo(item)
    show.note(f"nothing is missing; next:  bench submit -c {path}")


def _size(item: "Fetchable") -> str:
    from benchhouse.schema.quantities import show_bytes

    return "no" if item.size is None else show_bytes(item.size)


def _document(item: "Fetchable") -> dict[str, object]:
    return {
        "name": item.name,
        "experiment": item.experiment,
        "source": item.source,
        "sha256": item.sha256,
        "licence": item.licence,
        "path": str(item.path),
        "here": item.here,
        "size": item.size,
        "brought": item.brought,
    }
