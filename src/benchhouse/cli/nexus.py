"""The `nexus` command, for people who know it: other words for what `bench` does, by the same functions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import bench, commands, folder_option, run, show_error
from benchhouse.cli.commands import CommandGroup, help_with, open_workspace
from benchhouse.cli.verbs import evaluate, leaderboard, list_, packages
from benchhouse.cli.verbs.run import command as run_scenario
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.version import __version__


@click.group(
    cls=CommandGroup,
    **help_with(
        "Packages of a nexus: list, validate, run.\n\nExit codes: 0 good, 1 a trial failed or something could not be "
        "checked, 2 broken files, unregistered experiments.",
        "nexus list packages",
        "nexus validate package terratorch",
        "nexus validate logical-benchmarks",
        "nexus run benchmarks --package terratorch --model ibm/prithvi",
    ),
)
@folder_option
@click.version_option(__version__, message="nexus of benchhouse %(version)s")
@click.pass_context
def nexus(ctx: click.Context, folder: str | None) -> None:
    assert bench.callback
    ctx.invoke(bench.callback, folder=folder)


list_group = nexus.subgroup(
    "list",
    "List packages, what they install, experiments or benchmarks.",
    "nexus list packages",
    "nexus list benchmark-experiments",
)
get_group = nexus.subgroup(
    "get", "Print what a package needs.", "nexus get benchmark-requirements terratorch > requirements.txt"
)
validate_group = nexus.subgroup(
    "validate",
    "Prove that it holds; never 0 where it does not.",
    "nexus validate package terratorch",
    "nexus validate benchmarks",
)
run_group = nexus.subgroup("run", "Run benchmarks of packages.", "nexus run benchmarks --package terratorch --dry-run")


def _renamed(command: click.Command, typed: str, callback: Callable[..., int] | None = None) -> click.Command:
    """Return the same command, with an example that has its name here."""
    text = (command.help or "").partition("\n\n\b")[0]
    return click.Command(
        command.name, params=command.params, callback=callback or command.callback, **help_with(text, typed)
    )


def _truthful(command: click.Command, typed: str) -> click.Command:
    """Return the same command, but with exit code 2 if a file of the nexus can't be read: a list may not hide gaps."""

    def callback(nexus: str | None, **given: object) -> int:
        ctx = click.get_current_context()
        code = int(ctx.invoke(command, nexus=nexus, **given) or 0)
        return code or (Exit.BAD_INPUT if open_workspace(ctx).packages.broken(nexus=nexus) else Exit.GOOD)

    return _renamed(command, typed, callback)


list_group.add_command(_truthful(packages.list_, "nexus list packages"), "packages")
list_group.add_command(_truthful(list_.experiments, "nexus list benchmark-experiments"), "benchmark-experiments")
list_group.add_command(_truthful(list_.benchmarks, "nexus list benchmarks"), "benchmarks")
nexus.add_command(_renamed(evaluate.command, "nexus evaluate --changed-since origin/main --dry-run"), "evaluate")
validate_group.add_command(_renamed(packages.validate, "nexus validate package terratorch"), "package")


@list_group.verb(
    "The Python packages that packages install, and for which experiments.", "nexus list benchmark-packages"
)
@commands.nexus_option
def benchmark_packages(workspace: Workspace, nexus: str | None, as_json: bool) -> int:
    listed = workspace.packages.requirements(nexus=nexus)
    if as_json:
        screen.as_json(listed)
    else:
        rows = [(item.package, item.requirement_specifier, ", ".join(item.experiments)) for item in listed]
        screen.table(("package", "benchmark package", "experiments"), rows)
        screen.note("next:  nexus get benchmark-requirements PACKAGE")
    return _show_errors(workspace.packages.broken(nexus=nexus))


@list_group.verb("Logical benchmarks, and the experiments that answer each.", "nexus list logical-benchmarks")
@commands.nexus_option
def logical_benchmarks(workspace: Workspace, nexus: str | None, as_json: bool) -> int:
    code: int = click.get_current_context().invoke(leaderboard.command, nexus=nexus, as_json=as_json)
    return code


@get_group.verb(
    "What PACKAGE (or every one) installs: lines for pip install -r.",
    "nexus get benchmark-requirements terratorch > requirements.txt",
)
@click.argument("name", metavar="[PACKAGE]", required=False)
@commands.nexus_option
def benchmark_requirements(workspace: Workspace, name: str | None, nexus: str | None, as_json: bool) -> int:
    requirements = workspace.packages.requirement_lines(name, nexus=nexus)
    if as_json:
        screen.as_json(requirements.lines)
    else:
        click.echo("".join(f"{line}\n" for line in requirements.lines), nl=False)
    return _show_errors(requirements.errors)


@validate_group.verb(
    "The benchmarks of all packages: files, experiments, parameters.", "nexus validate benchmarks", name="benchmarks"
)
@commands.nexus_option
def validate_benchmarks(workspace: Workspace, nexus: str | None, as_json: bool) -> int:
    proof = workspace.packages.validate_benchmarks(nexus=nexus)
    if as_json:
        screen.as_json([item.as_dict() for item in proof.findings])
        return proof.exit_code
    _show_errors([proof.failure] if proof.failure else [])
    for item in proof.unchecked:
        screen.note(f"not checked: {item.what}: {item.why}")
    counted = f"{proof.count('broken')} broken, {len(proof.unchecked)} not checked"
    click.echo(f"{screen.count(proof.benchmarks, 'benchmark')}: {counted}")
    again = "correct what is named above, then:  nexus validate benchmarks"
    screen.note(again if proof.problems else "next:  nexus validate package")
    return proof.exit_code


@validate_group.verb(
    "Logical benchmarks: by themselves, and beside their experiments.",
    "nexus validate logical-benchmarks",
    name="logical-benchmarks",
)
@commands.nexus_option
def validate_logical(workspace: Workspace, nexus: str | None, as_json: bool) -> int:
    checked = workspace.leaderboards.validate(nexus=nexus)
    bad = [item for item in checked if not item.good]
    code = Exit.BAD_INPUT if bad else Exit.GOOD
    if as_json:
        screen.as_json([item.as_dict() for item in checked])
        return code
    _show_errors([item.failure for item in bad])
    click.echo(f"{screen.count(len(checked), 'logical benchmark')}: {len(checked) - len(bad)} good, {len(bad)} not")
    again = "correct what is named above, then:  nexus validate logical-benchmarks"
    screen.note(again if bad else "next:  bench leaderboard")
    return code


@run_group.verb(
    "Run every benchmark of the packages that has its target, one run each.",
    "nexus run benchmarks --package terratorch --dry-run",
    "nexus run benchmarks --model ibm/prithvi",
    name="benchmarks",
    json=False,
)
@click.option("--package", metavar="NAME", help="Only of that package.")
@click.option("--model", metavar="ID", help="Only for that model.")
@click.option("--benchmark", metavar="NAME", help="Only of that name.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and stop.")
@commands.nexus_option
def run_benchmarks(
    workspace: Workspace, /, package: str | None, dry_run: bool, nexus: str | None, **filters: str | None
) -> int:
    chosen = workspace.packages.runnable(package, nexus=nexus, **filters)
    code = _show_errors(workspace.packages.broken(package, nexus=nexus))
    refused = 0
    for item in chosen:
        screen.note(f"{item.benchmark}:")
        try:
            ended = click.get_current_context().invoke(run_scenario, scenario=Path(item.file), dry_run=dry_run)
        except BenchError as error:  # the others are run anyway
            show_error(error)
            ended, refused = error.exit_code, refused + 1
        if ended == Exit.INTERRUPTED:
            return Exit.INTERRUPTED
        code = max(code, int(ended or 0))
    ran = "nothing was started" if dry_run else f"{len(chosen) - refused} run, {refused} refused" if refused else "run"
    screen.note(f"{screen.count(len(chosen), 'benchmark')}, {ran}. next:  nexus list benchmarks")
    return code


def _show_errors(errors: Sequence[BenchError]) -> int:
    for error in errors:
        click.echo(screen.on_stderr(f"error: {error.message}"), err=True)  # JSON is on stdout
    return Exit.BAD_INPUT if errors else Exit.GOOD


def main() -> None:
    run(nexus, "nexus")
