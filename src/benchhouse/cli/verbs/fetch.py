"""Fetch data that experiments need, checked by digest; or everything external that a scenario needs."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError


@commands.verb(
    f"{__doc__} Without a name, list what can be fetched.",
    "bench fetch   what can be fetched, and what is in the cache",
    "bench fetch NAME   download the data that an experiment declares under this name",
    "bench fetch -c SCENARIO.yaml --site meluxina   on a login node: data, packages; lists images that are missing",
)
@click.argument("names", nargs=-1)
@click.option("-c", "--config", metavar="SCENARIO", type=commands.FILE, help="Fetch all that this scenario needs.")
@commands.where_options
def command(
    workspace: Workspace, /, names: tuple[str, ...], config: Path | None, as_json: bool, **where: str | None
) -> None:
    if names and config:
        raise BenchError("give names of data, or a scenario, not both", "bench fetch -c SCENARIO.yaml")
    if config:
        fetched = workspace.fetch_for(config, progress=screen.RunProgress(), **where)
        if as_json:
            screen.as_json({"brought": [str(path) for path in fetched]})
            return
        for path in fetched:
            click.echo(path)
        screen.note(f"nothing is missing; next:  bench submit -c {config}")
        return
    files = workspace.fetch(*names) if names else workspace.fetchable()
    if as_json:
        screen.as_json([item.to_dict() for item in files])
        return
    if names:
        for item in files:
            click.echo(item.path)
            screen.note(item.summary())
    elif not files:
        screen.note("no installed experiment declares data to download")
    else:
        rows = [
            (item.name, item.experiment, "no" if item.size is None else screen.size(item.size), item.licence,
             item.sha256[:12], item.source)
            for item in files
        ]  # fmt: skip
        screen.table(("data", "experiment", "here", "licence", "sha256", "source"), rows)
        screen.note("next:  bench fetch NAME")
