"""Scaffold an experiment package or a scenario."""

from pathlib import Path

import click

from benchhouse.cli import options, show


@click.group(help=__doc__)
def command() -> None:
    pass


@command.command(help="An installable experiment package whose own test passes.")
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), default=Path(), help="Where to put the folder.")
def experiment(name: str, into: Path) -> None:
    from benchhouse.api import scaffold

    folder = scaffold.experiment(name, into)
    click.echo(folder)
    show.note(f"next:  pip install -e {folder} && bench run {folder}/scenario.yaml")


@command.command(help="A commented scenario file to start from.")
@click.argument("name")
@click.option(
    "--experiment", "chosen", default="command", show_default=True, shell_complete=options.complete_experiment,
    help="The experiment it runs.",
)  # fmt: skip
def scenario(name: str, chosen: str) -> None:
    from benchhouse.api import scaffold

    path = scaffold.scenario(name, chosen, Path())
    click.echo(path)
    show.note(f"next:  bench plan {path}")
