"""The `nexus` command, for people who know it: other words for what `bench` does, by the same functions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from benchhouse import __version__
from benchhouse.api import screen
from benchhouse.cli import bench, options, run, show_error
from benchhouse.cli.examples import examples
from benchhouse.cli.verbs import leaderboard, list_, packages
from benchhouse.cli.verbs.run import command as run_scenario
from benchhouse.documents.problems import ProblemsError
from benchhouse.schema.errors import BenchError, Exit

_EXAMPLES = """\b
Examples:
  nexus list packages
  nexus validate package terratorch
  nexus validate logical-benchmarks
  nexus run benchmarks --package terratorch --model ibm/prithvi
"""


@click.group(
    help=f"Packages of a nexus: list, validate, run.\n\n{_EXAMPLES}\n"
    "Exit codes: 0 good, 1 a trial failed or something could not be checked, 2 broken files, unregistered experiments."
)
@click.option(
    "-C", "folder", metavar="DIR", envvar="BENCH_WORKSPACE", help="Work in DIR instead of the current folder."
)
@click.version_option(__version__, message="nexus of benchhouse %(version)s")
@click.pass_context
def nexus(ctx: click.Context, folder: str | None) -> None:
    assert bench.callback
    ctx.invoke(bench.callback, folder=folder)


@nexus.group(
    "list",
    help="List packages, what they install, experiments or benchmarks."
    + examples("nexus list packages", "nexus list benchmark-experiments"),
)
def list_group() -> None:
    pass


@nexus.group(
    help="Print what a package needs." + examples("nexus get benchmark-requirements terratorch > requirements.txt")
)
def get() -> None:
    pass


@nexus.group(
    help="Prove that it holds; never 0 where it does not."
    + examples("nexus validate package terratorch", "nexus validate benchmarks")
)
def validate() -> None:
    pass


@nexus.group(
    "run", help="Run benchmarks of packages." + examples("nexus run benchmarks --package terratorch --dry-run")
)
def run_group() -> None:
    pass


def _renamed(command: click.Command, typed: str, callback: Callable[..., int] | None = None) -> click.Command:
    """The same, told by the name that it has here."""
    told = (command.help or "").partition("\n\n\b")[0] + examples(typed)
    return click.Command(command.name, params=command.params, callback=callback or command.callback, help=told)


def _truthful(command: click.Command, typed: str) -> click.Command:
    """The same, ended with 2 where a file of the nexus can't be read: a list may not hide what is missing in it."""

    def callback(nexus: str | None, **given: object) -> int:
        from benchhouse.nexus import packages as api

        ctx = click.get_current_context()
        code = int(ctx.invoke(command, nexus=nexus, **given) or 0)
        return code or (Exit.BAD_INPUT if api.load(options.workspace(ctx).folder, nexus).broken else Exit.GOOD)

    return _renamed(command, typed, callback)


list_group.add_command(_truthful(packages.list_, "nexus list packages"), "packages")
list_group.add_command(_truthful(list_.experiments, "nexus list benchmark-experiments"), "benchmark-experiments")
list_group.add_command(_truthful(list_.benchmarks, "nexus list benchmarks"), "benchmarks")
validate.add_command(_renamed(packages.validate, "nexus validate package terratorch"), "package")


@list_group.command(
    "benchmark-packages",
    help="The Python packages that packages install, and for which experiments."
    + examples("nexus list benchmark-packages"),
)
@options.nexus_option
@options.json_option
@click.pass_context
def benchmark_packages(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import packages as api

    found = api.load(options.workspace(ctx).folder, nexus)
    rows = [
        {"package": package.name, **item.model_dump()}
        for package in found.packages
        for item in package.entry.benchmark_packages
    ]
    if as_json:
        screen.as_json(rows)
    else:
        table = [(row["package"], row["requirement_specifier"], ", ".join(row["experiments"])) for row in rows]
        screen.table(("package", "benchmark package", "experiments"), table)
        screen.note("next:  nexus get benchmark-requirements PACKAGE")
    return _broken([item.error for item in found.broken])


@list_group.command(
    "logical-benchmarks",
    help="Logical benchmarks, and the experiments that answer each." + examples("nexus list logical-benchmarks"),
)
@options.nexus_option
@options.json_option
@click.pass_context
def logical_benchmarks(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    found: int = ctx.invoke(leaderboard.command, nexus=nexus, as_json=as_json)
    return found


@get.command(
    "benchmark-requirements",
    help="What PACKAGE (or every one) installs: lines for pip install -r."
    + examples("nexus get benchmark-requirements terratorch > requirements.txt"),
)
@click.argument("name", metavar="[PACKAGE]", required=False)
@options.nexus_option
@options.json_option
@click.pass_context
def benchmark_requirements(ctx: click.Context, name: str | None, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import packages as api
    from benchhouse.nexus import root as asking

    found = api.load(options.workspace(ctx).folder, nexus)
    chosen = [api.pick(found, name)] if name else list(found.packages)
    lines, problems = asking.requirement_lines(found, chosen)
    if as_json:
        screen.as_json(lines)
    else:
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
    return _broken([*problems, *(item.error for item in found.broken if name in (None, item.origin))])


@validate.command(
    "benchmarks",
    help="The benchmarks of all packages: files, experiments, parameters." + examples("nexus validate benchmarks"),
)
@options.nexus_option
@options.json_option
@click.pass_context
def validate_benchmarks(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import package_checks
    from benchhouse.nexus import packages as api

    workspace = options.workspace(ctx).folder
    proof = package_checks.prove(workspace, api.load(workspace, nexus), None, package_checks.Asked(static=True))
    proof = replace(proof, static=False)  # what could not be looked at is not good here
    if as_json:
        screen.as_json([item.as_dict() for item in proof.findings])
        return proof.exit_code
    _broken([ProblemsError(proof.problems)] if proof.problems else [])
    for item in proof.findings:
        if item.state == "unchecked":
            screen.note(f"not checked: {item.what}: {item.why}")
    counted = f"{proof.count('broken')} broken, {proof.count('unchecked')} not checked"
    click.echo(f"{screen.count(proof.benchmarks, 'benchmark')}: {counted}")
    again = "mend what is named above, then:  nexus validate benchmarks"
    screen.note(again if proof.problems else "next:  nexus validate package")
    return proof.exit_code


@validate.command(
    "logical-benchmarks",
    help="Logical benchmarks: by themselves, and beside their experiments."
    + examples("nexus validate logical-benchmarks"),
)
@options.nexus_option
@options.json_option
@click.pass_context
def validate_logical(ctx: click.Context, nexus: str | None, as_json: bool) -> int:
    from benchhouse.nexus import logical

    checked = logical.validate(options.workspace(ctx).folder, nexus)
    bad = [item for item in checked if not item.good]
    if as_json:
        screen.as_json([item.as_dict() for item in checked])
        return Exit.BAD_INPUT if bad else Exit.GOOD
    _broken([item.failure for item in bad])
    click.echo(f"{screen.count(len(checked), 'logical benchmark')}: {len(checked) - len(bad)} good, {len(bad)} not")
    screen.note(
        "mend what is named above, then:  nexus validate logical-benchmarks" if bad else "next:  bench leaderboard"
    )
    return Exit.BAD_INPUT if bad else Exit.GOOD


@run_group.command(
    "benchmarks",
    help="Run every benchmark of the packages that has its target, one run each."
    + examples("nexus run benchmarks --package terratorch --dry-run", "nexus run benchmarks --model ibm/prithvi"),
)
@click.option("--package", metavar="NAME", help="Only of that package.")
@click.option("--model", metavar="ID", help="Only for that model.")
@click.option("--benchmark", metavar="NAME", help="Only of that name.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and stop.")
@options.nexus_option
@click.pass_context
def run_benchmarks(
    ctx: click.Context, package: str | None, model: str | None, benchmark: str | None, dry_run: bool, nexus: str | None
) -> int:
    from benchhouse.nexus import packages as api
    from benchhouse.nexus import root as asking

    found = api.load(options.workspace(ctx).folder, nexus)
    chosen = asking.runnable(found, package, model, benchmark)
    code = _broken([item.error for item in found.broken if package in (None, item.origin)])
    refused = 0
    for item in chosen:
        screen.note(f"{item.id}:")
        try:
            ended = ctx.invoke(run_scenario, scenario=Path(item.document.path), dry_run=dry_run)
        except BenchError as error:  # the others are run all the same
            show_error(error)
            ended, refused = error.exit_code, refused + 1
        if ended == Exit.INTERRUPTED:
            return Exit.INTERRUPTED
        code = max(code, int(ended or 0))
    ran = "nothing was started" if dry_run else f"{len(chosen) - refused} run, {refused} refused" if refused else "run"
    screen.note(f"{screen.count(len(chosen), 'benchmark')}, {ran}. next:  nexus list benchmarks")
    return code


def _broken(errors: Sequence[BenchError]) -> int:
    for error in errors:
        click.echo(screen.on_stderr(f"error: {error.message}"), err=True)  # JSON is on stdout
    return Exit.BAD_INPUT if errors else Exit.GOOD


def main() -> None:
    run(nexus, "nexus")
