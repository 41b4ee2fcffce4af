"""List experiments, benchmarks or targets."""

from collections import Counter
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples


@click.group(help=__doc__)
def command() -> None:
    pass


@command.command(
    help="Experiments, installed here or registered in a nexus; deprecated and broken ones too."
    + examples("bench list experiments", "bench list experiments --json")
)
@options.nexus_option
@options.json_option
@click.pass_context
def experiments(ctx: click.Context, nexus: str | None, as_json: bool) -> None:
    from benchhouse.api import catalogue

    listed = catalogue.across(options.workspace(ctx).folder, nexus)
    if as_json:
        screen.as_json(listed)
        return
    claims = Counter((item["name"], item["version"]) for item in listed)
    rows = []
    for item in listed:
        state = "broken" if item["broken"] else "deprecated" if item["deprecated"] else ""
        state = f"{item['bridge']} {state}".strip()
        if claims[item["name"], item["version"]] > 1:
            state = f"{state} claimed twice".strip()
        about = item["broken"].splitlines()[0] if item["broken"] else item["description"]
        package = f"{item['distribution']} {item['distribution_version']}"
        if not item["installed"]:
            state, package = "not installed", ""
        if item["registered_by"]:
            about = f"{about} (of {', '.join(item['registered_by'])})".strip()
        rows.append((item["name"], item["version"], package, state, about))
    screen.table(("experiment", "version", "package", "", "what it does"), rows)
    screen.note("next:  bench show EXPERIMENT")


@command.command(
    help="Registered benchmarks: of benchmarks/ in the workspace, of installed packages, of a nexus."
    + examples("bench list benchmarks", "bench list benchmarks --experiment vector.search")
)
@click.option("--package", metavar="NAME", help="Of that package of the nexus, or that distribution.")
@click.option("--model", metavar="ID", help="That are run for that model.")
@click.option("--experiment", metavar="NAME", help="Of that experiment.")
@options.nexus_option
@options.json_option
@click.pass_context
def benchmarks(ctx: click.Context, /, nexus: str | None, as_json: bool, **wanted: str | None) -> None:
    from benchhouse.nexus.benchmarks import Wanted, registered

    listed = registered(options.workspace(ctx).folder, nexus, Wanted(**wanted))
    if as_json:
        screen.as_json(listed)
        return
    columns = ("benchmark", "experiment", "models", "used by", "last result", "run", "origin", "what it is")
    rows = [
        (item["benchmark"], item["experiment"], ", ".join(item["models"]), ", ".join(item["used_by"]),
         *_last(item["last"]), item["origin"], item["description"])
        for item in listed
        if not item["broken"]
    ]  # fmt: skip
    screen.table(columns, rows, whole=("benchmark",), spare=("what it is", "run", "origin"))
    for item in listed:
        if item["broken"]:
            screen.note(f"broken: {item['broken']}")
    if not listed:
        asked = ", ".join(f"--{key} {value}" for key, value in wanted.items() if value)
        if asked:
            screen.note(f"none with {asked}; all there are:  bench list benchmarks")
        else:
            screen.note("none; a benchmark is a YAML file in benchmarks/ with `benchmark:`, `experiment:`, `workload:`")
            screen.note("logical benchmarks are listed by:  bench leaderboard")
    elif rows:
        screen.note("next:  bench show BENCHMARK")


def _last(last: dict[str, Any] | None) -> tuple[str, str]:
    """`rate 812 items/s (6/6)`, and the run."""
    if last is None:
        return "", ""
    counts, result = f"{last['succeeded']}/{last['trials']}", last["result"]
    if not result:
        return f"({counts})", last["run_id"]
    more = f", 1 of {result['points']} points" if result["points"] > 1 else ""
    value = f"{result['metric']} {screen.number(result['mean'], result['stdev'])} {result['unit']}"
    return f"{value} ({counts}{more})", last["run_id"]


@command.command(help="Targets that were benchmarked in this workspace." + examples("bench list targets"))
@options.json_option
@click.pass_context
def targets(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import catalogue

    listed = catalogue.targets(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(listed)
        return
    columns = ("target", "experiment", "trials", "last run")
    screen.table(columns, [(row["target"], row["experiment"], row["trials"], row["last_run"]) for row in listed])
    next_one = "bench compare RUN:name=TARGET RUN:name=TARGET" if listed else "bench run SCENARIO.yaml"
    screen.note(f"next:  {next_one}")
