"""List experiments, benchmarks, targets, importers, or exporters."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands

if TYPE_CHECKING:
    from benchhouse.api.catalog import LastRun, ListedExperiment

command = commands.group(
    __doc__,
    "bench list experiments   what can be measured",
    "bench list benchmarks   registered ones",
    "bench list targets   what was measured here",
)


@command.verb(
    "Experiments, installed here or in an isolated environment, or registered in a nexus; deprecated ones too.",
    "bench list experiments",
    "bench list experiments --json",
    "bench list experiments --with ./my-package   what a package would bring, installed apart from all others",
)
@commands.nexus_option
@click.option(
    "--with", "requirements", multiple=True, metavar="REQUIREMENT",
    help="Look into a package that is not installed: a folder, a wheel, NAME==VERSION. May be given again.",
)  # fmt: skip
def experiments(workspace: Workspace, nexus: str | None, requirements: tuple[str, ...], as_json: bool) -> None:
    listed = workspace.catalog.experiments(nexus=nexus, requirements=requirements)
    if as_json:
        screen.as_json(listed)
        return
    claims = Counter((item.name, item.version) for item in listed)
    rows = [_experiment_row(item, claims[item.name, item.version]) for item in listed]
    screen.table(("experiment", "version", "package", "", "what it does"), rows)
    screen.note("next:  bench show EXPERIMENT")


def _experiment_row(item: "ListedExperiment", claims: int) -> tuple[str, str, str, str, str]:
    about = item.broken.splitlines()[0] if item.broken else item.description
    if item.registered_by:
        about = f"{about} (of {', '.join(item.registered_by)})".strip()
    if not item.installed and not item.environment:
        return item.name, item.version, "", "not installed", about
    state = "broken" if item.broken else "deprecated" if item.deprecated else ""
    apart = "isolated" if item.environment else ""
    state = " ".join(part for part in (item.bridge, apart, state, "claimed twice" if claims > 1 else "") if part)
    return item.name, item.version, f"{item.distribution} {item.distribution_version}", state, about


@command.verb(
    "Registered benchmarks: of benchmarks/ in the workspace, of installed packages, of a nexus.",
    "bench list benchmarks",
    "bench list benchmarks --experiment vector.search",
)
@click.option("--package", metavar="NAME", help="Only those of a package of the nexus, or of a distribution.")
@click.option("--model", metavar="ID", help="Only those that are run for a model.")
@click.option("--experiment", metavar="NAME", help="Only those of an experiment.")
@commands.nexus_option
def benchmarks(workspace: Workspace, /, nexus: str | None, as_json: bool, **filters: str | None) -> None:
    listed = workspace.catalog.benchmarks(nexus=nexus, **filters)
    if as_json:
        screen.as_json(listed)
        return
    columns = ("benchmark", "experiment", "models", "used by", "last result", "run", "origin", "what it is")
    rows = [
        (item.benchmark, item.experiment, ", ".join(item.models), ", ".join(item.used_by),
         *_last(item.last), item.origin, item.description)
        for item in listed
        if not item.broken
    ]  # fmt: skip
    screen.table(columns, rows, whole=("benchmark",), spare=("what it is", "run", "origin"))
    for item in listed:
        if item.broken:
            screen.note(f"broken: {item.broken}")
    given = ", ".join(f"--{key} {value}" for key, value in filters.items() if value)
    if rows:
        screen.note("next:  bench show BENCHMARK")
    elif not listed and given:
        screen.note(f"none with {given}; all benchmarks:  bench list benchmarks")
    elif not listed:
        screen.note("none; a benchmark is a YAML file in benchmarks/ with `benchmark:`, `experiment:`, `workload:`")
        screen.note("logical benchmarks are listed by:  bench leaderboard")


def _last(last: "LastRun | None") -> tuple[str, str]:
    """Return `rate 812 items/s (6/6)`, and the run; two empty texts if there is no run."""
    if last is None:
        return "", ""
    counts, result = f"{last.succeeded}/{last.trials}", last.result
    if not result:
        return f"({counts})", last.run_id
    more = f", 1 of {result.points} points" if result.points > 1 else ""
    value = f"{result.metric} {screen.number(result.mean, result.stdev)} {result.unit}"
    return f"{value} ({counts}{more})", last.run_id


@command.verb("Targets that were benchmarked in this workspace.", "bench list targets")
def targets(workspace: Workspace, as_json: bool) -> None:
    listed = workspace.catalog.targets()
    if as_json:
        screen.as_json(listed)
        return
    columns = ("target", "experiment", "trials", "last run")
    screen.table(columns, [(item.target, item.experiment, item.trials, item.last_run) for item in listed])
    command = "bench compare RUN:name=TARGET RUN:name=TARGET" if listed else "bench run SCENARIO.yaml"
    screen.note(f"next:  {command}")


@command.verb("Kinds of result files of other tools that can be imported.", "bench list importers")
def importers(workspace: Workspace, as_json: bool) -> None:
    kinds = workspace.catalog.importers()
    if as_json:
        screen.as_json([{"kind": kind, "about": about} for kind, about in kinds.items()])
        return
    screen.table(("kind", "what it is"), kinds.items())
    screen.note("next:  bench import FILE")


@command.verb("Formats of other tools that results can be exported to.", "bench list exporters")
def exporters(workspace: Workspace, as_json: bool) -> None:
    kinds = workspace.catalog.exporters()
    if as_json:
        screen.as_json([{"kind": kind, "about": about} for kind, about in kinds.items()])
        return
    screen.table(("kind", "what it is"), kinds.items())
    screen.note("next:  bench export RUN --as KIND")
