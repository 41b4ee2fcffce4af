"""Scaffold an experiment or a scenario; or a package, model or benchmark of a nexus."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples

_EXAMPLES = """\b
Examples:
  bench new scenario mine --experiment vector.search
  bench new package terratorch                             the first makes this folder a nexus
  bench new model terratorch ibm/prithvi --owner me
  bench new benchmark smoke --package terratorch --model ibm/prithvi
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    help="An installable experiment package whose own test passes."
    + examples("bench new experiment sorting", "bench new experiment sorting --into experiments")
)
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), default=Path(), help="Where to put the folder.")
@click.pass_context
def experiment(ctx: click.Context, name: str, into: Path) -> None:
    folder = options.workspace(ctx).new.experiment(name, into=into)
    click.echo(folder)
    screen.note(f"next:  pip install -e {folder} && bench run {folder}/scenario.yaml")


@command.command(
    help="A commented scenario file to start from."
    + examples("bench new scenario mine", "bench new scenario mine --experiment vector.search")
)
@click.argument("name")
@click.option(
    "--experiment", "chosen", default="command", show_default=True, shell_complete=options.complete_experiment,
    help="The experiment it runs.",
)  # fmt: skip
@click.pass_context
def scenario(ctx: click.Context, name: str, chosen: str) -> None:
    path = options.workspace(ctx).new.scenario(name, experiment=chosen)
    click.echo(path)
    screen.note(f"next:  bench plan {path}")


@command.command(
    help="A package of a nexus; without a nexus this folder becomes one." + examples("bench new package terratorch")
)
@click.argument("name")
@options.nexus_option
@click.pass_context
def package(ctx: click.Context, name: str, nexus: str | None) -> None:
    click.echo(options.workspace(ctx).new.package(name, nexus=nexus))
    screen.note(f"next:  bench new model {name} ORG/MODEL")


@command.command(
    help="A model of a package: what is below its folder is run for it."
    + examples("bench new model terratorch ibm/prithvi --owner me")
)
@click.argument("package_name", metavar="PACKAGE")
@click.argument("model_id", metavar="ID")
@click.option("--owner", default="", help="Who answers for its benchmarks.")
@options.nexus_option
@click.pass_context
def model(ctx: click.Context, package_name: str, model_id: str, owner: str, nexus: str | None) -> None:
    click.echo(options.workspace(ctx).new.model(package_name, model_id, owner=owner, nexus=nexus))
    screen.note(f"next:  bench new benchmark NAME --package {package_name} --model {model_id}")


@command.command(
    help="A benchmark of a package, or with --model one that is run for that model."
    + examples(
        "bench new benchmark smoke --package terratorch",
        "bench new benchmark smoke --package terratorch --model ibm/prithvi",
    )
)
@click.argument("name")
@click.option("--package", "package_name", metavar="PACKAGE", required=True, help="The package it belongs to.")
@click.option("--model", "model_name", metavar="ID", help="The model it is run for, by id or folder.")
@click.option(
    "--experiment", "chosen", default="command", show_default=True, shell_complete=options.complete_experiment,
    help="The experiment it runs.",
)  # fmt: skip
@click.option("--uses", metavar="PACKAGE/BENCHMARK", help="Run that benchmark for the model, whosever it is.")
@options.nexus_option
@click.pass_context
def benchmark(
    ctx: click.Context, /, name: str, package_name: str, model_name: str | None, chosen: str, uses: str | None,
    nexus: str | None,
) -> None:  # fmt: skip
    path = options.workspace(ctx).new.benchmark(
        name, package=package_name, model=model_name, experiment=chosen, uses=uses, nexus=nexus
    )
    click.echo(path)
    using = f"bench new benchmark {name} --package {package_name} --model ID --uses {package_name}/{name}"
    screen.note(f"next:  bench run {path}" if model_name else f"next:  {using}")
