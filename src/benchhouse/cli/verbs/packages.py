"""Packages of a nexus: which benchmarks are for which models, and whether all of it holds."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.nexus.package_checks import Proof

_EXAMPLES = """\b
Examples:
  bench packages list
  bench packages show terratorch
  bench packages validate                   schemas, experiments, parameters, and that all of it installs together
  bench packages validate terratorch --install      what is not installed here is tried in an environment of its own
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command("list", help="All packages of the nexus." + examples("bench packages list"))
@options.nexus_option
@options.json_option
@click.pass_context
def list_(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import packages

    found = packages.load(options.workspace(ctx).folder, nexus)
    rows = packages.list_packages(found)
    if as_json:
        screen.as_json(rows)
        return Exit.GOOD
    columns = ("package", "Python packages", "experiments", "models", "benchmarks", "broken")
    keys = ("package", "benchmark_packages", "experiments", "models", "benchmarks")
    table = [(*(row[key] for key in keys), len(row["broken"]) or "") for row in rows]
    screen.table(columns, table, right=columns[1:], whole=("package",))
    if any(row["broken"] for row in rows):
        screen.note("what is broken, and where:  bench packages validate --static")
    else:
        screen.note("next:  bench packages show PACKAGE")
    return Exit.GOOD


@command.command(
    "show",
    help="One package: what it installs, its models and its benchmarks." + examples("bench packages show terratorch"),
)
@click.argument("name", metavar="PACKAGE")
@options.nexus_option
@options.json_option
@click.pass_context
def show_(ctx: click.Context, name: str, nexus: str | None, as_json: bool) -> None:
    from benchhouse.nexus import packages

    shown = packages.show_package(packages.load(options.workspace(ctx).folder, nexus), name)
    if as_json:
        screen.as_json(shown)
        return
    click.echo(f"{shown['package']}  ({shown['file']})")
    for item in shown["benchmark_packages"]:
        click.echo(f"  installs {item['requirement_specifier']}  for {', '.join(item['experiments']) or 'nothing'}")
    rows = [_row(item, "") for item in shown["benchmarks"]]
    for model in shown["models"]:
        owner = f", {model['owner']}" if model["owner"] else ""
        click.echo(f"  model {model['model']}{owner}  ({model['file']})")
        rows += [_row(item, model["model"]) for item in model["benchmarks"]]
    if rows:
        click.echo()
        screen.table(("benchmark", "model", "runs", "file"), rows, whole=("benchmark",))
    for message in shown["broken"]:
        screen.note(f"broken: {message}")
    screen.note(f"next:  bench packages validate {name}")


def _row(item: dict[str, Any], model: str) -> tuple[str, str, str, str]:
    runs = [f"{ref['experiment']} {ref['version'] or ''}".strip() for ref in item["experiments"]]
    return item["benchmark"], model, ", ".join(runs) or f"uses {item['uses']}", item["file"]


@command.command(
    help="Prove it; exit code 2 for what is broken, 1 for what could not be checked, 0 for neither."
    + examples(
        "bench packages validate", "bench packages validate terratorch --static   the files alone, without a resolver"
    )
)
@click.argument("name", metavar="[PACKAGE]", required=False)
@click.option("--static", is_flag=True, help="Files, and experiments that are installed here; nothing is resolved.")
@click.option("--install", is_flag=True, help="Check what is not installed here in an environment of its own.")
@click.option("--timeout", "timeout_s", type=float, default=120, show_default=True, help="Seconds for each resolution.")
@options.nexus_option
@options.json_option
@click.pass_context
def validate(
    ctx: click.Context, /, name: str | None, static: bool, install: bool, timeout_s: float, nexus: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    from benchhouse.nexus import package_checks, packages

    if static and install:
        raise BenchError("give --static or --install, not both", "--static installs nothing")
    workspace = options.workspace(ctx).folder
    found = packages.load(workspace, nexus)
    asked = package_checks.Asked(static, install, timeout_s)
    proof = package_checks.prove(workspace, found, name, asked, screen.note)
    if as_json:
        screen.as_json(
            {
                "packages": proof.packages,
                "benchmarks": proof.benchmarks,
                "findings": [item.as_dict() for item in proof.findings],
                "exit_code": int(proof.exit_code),
            }
        )
    else:
        _tell(proof)
    return proof.exit_code


def _tell(proof: "Proof") -> None:
    for problem in proof.problems:
        click.echo(screen.on_stderr(problem.render()), err=True)
    for item in proof.findings:
        if item.state == "unchecked":
            screen.note(f"not checked: {item.what}: {item.why}")
    good = f"{screen.count(proof.packages, 'package')}, {screen.count(proof.benchmarks, 'benchmark')}"
    wrong = len(proof.problems)
    unchecked = proof.count("unchecked")
    click.echo(f"{good}: {screen.count(wrong, 'problem')}, {unchecked} not checked")
    if wrong:
        screen.note("mend what is named above, then:  bench packages validate")
    elif unchecked and not proof.static:
        screen.note("check it in an environment of its own:  bench packages validate --install")
    elif proof.static:
        screen.note("the files hold; whether all of it installs together:  bench packages validate")
    else:
        screen.note("next:  bench list benchmarks")
