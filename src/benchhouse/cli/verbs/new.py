"""Scaffold an experiment or a scenario; or a package, model, or benchmark of a nexus."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

command = commands.group(
    __doc__,
    "bench new scenario mine --experiment vector.search",
    "bench new package terratorch   the first makes this folder a nexus",
    "bench new model terratorch ibm/prithvi --owner me",
    "bench new benchmark smoke --package terratorch --model ibm/prithvi",
)
_experiment_option = click.option("--experiment", default="command", show_default=True, help="The experiment it runs.",
                                  shell_complete=commands.complete_experiment)  # fmt: skip


@command.verb(
    "An installable experiment package whose own test passes.",
    "bench new experiment sorting",
    "bench new experiment sorting --into experiments",
    json=False,
)
@click.argument("name")
@click.option("--into", type=commands.FILE, default=Path(), help="Where to put the folder.")
def experiment(workspace: Workspace, name: str, into: Path) -> None:
    folder = workspace.new.experiment(name, into=into)
    click.echo(folder)
    screen.note(f"next:  pip install -e {folder} && bench run {folder}/scenario.yaml")


@command.verb(
    "A commented scenario file to start from.",
    "bench new scenario mine",
    "bench new scenario mine --experiment vector.search",
    json=False,
)
@click.argument("name")
@_experiment_option
def scenario(workspace: Workspace, name: str, experiment: str) -> None:
    path = workspace.new.scenario(name, experiment=experiment)
    click.echo(path)
    screen.note(f"next:  bench plan {path}")


@command.verb(
    "A package of a nexus; without a nexus this folder becomes one.", "bench new package terratorch", json=False
)
@click.argument("name")
@commands.nexus_option
def package(workspace: Workspace, name: str, nexus: str | None) -> None:
    click.echo(workspace.new.package(name, nexus=nexus))
    screen.note(f"next:  bench new model {name} ORG/MODEL")


@command.verb(
    "A model of a package: what is below its folder is run for it.",
    "bench new model terratorch ibm/prithvi --owner me",
    json=False,
)
@click.argument("package_name", metavar="PACKAGE")
@click.argument("model_id", metavar="ID")
@click.option("--owner", default="", help="Who answers for its benchmarks.")
@commands.nexus_option
def model(workspace: Workspace, package_name: str, model_id: str, owner: str, nexus: str | None) -> None:
    click.echo(workspace.new.model(package_name, model_id, owner=owner, nexus=nexus))
    screen.note(f"next:  bench new benchmark NAME --package {package_name} --model {model_id}")


@command.verb(
    "A benchmark of a package, or with --model one that is run for that model.",
    "bench new benchmark smoke --package terratorch",
    "bench new benchmark smoke --package terratorch --model ibm/prithvi",
    json=False,
)
@click.argument("name")
@click.option("--package", metavar="PACKAGE", required=True, help="The package it belongs to.")
@click.option("--model", metavar="ID", help="The model it is run for, by id or folder.")
@_experiment_option
@click.option("--uses", metavar="PACKAGE/BENCHMARK", help="Run that benchmark for the model, whosever it is.")
@commands.nexus_option
def benchmark(workspace: Workspace, /, name: str, package: str, model: str | None, **settings: Any) -> None:
    path = workspace.new.benchmark(name, package=package, model=model, **settings)
    click.echo(path)
    using = f"bench new benchmark {name} --package {package} --model ID --uses {package}/{name}"
    screen.note(f"next:  bench run {path}" if model else f"next:  {using}")
