"""List experiments, benchmarks or targets."""

from collections import Counter
from dataclasses import asdict

import click

from benchhouse.cli import options, show


@click.group(help=__doc__)
def command() -> None:
    pass


@command.command(help="Installed experiments, deprecated and broken ones too.")
@options.json_option
def experiments(as_json: bool) -> None:
    from benchhouse.api import catalogue

    listed = catalogue.experiments()
    if as_json:
        show.as_json([asdict(item) for item in listed])
        return
    claims = Counter((item.name, item.version) for item in listed)
    rows = []
    for item in listed:
        state = "broken" if item.broken else "deprecated" if item.deprecated else ""
        state = f"{item.bridge} {state}".strip()
        if claims[item.name, item.version] > 1:
            state = f"{state} claimed twice".strip()
        about = item.broken.splitlines()[0] if item.broken else item.description
        rows.append((item.name, item.version, f"{item.distribution} {item.distribution_version}", state, about))
    show.table(("experiment", "version", "package", "", "what it does"), rows)
    show.note("next:  bench show EXPERIMENT")


@command.command(help="Registered benchmarks: the workspace's benchmarks/ folder and installed packages.")
@options.json_option
@click.pass_context
def benchmarks(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import catalogue

    listed = catalogue.benchmarks(options.workspace(ctx))
    if as_json:
        show.as_json(listed)
        return
    columns = ("benchmark", "experiment", "origin", "used by", "what it is")
    rows = [
        (item["benchmark"], item["experiment"], item["origin"], ", ".join(item["used_by"]), item["description"])
        for item in listed
        if not item["broken"]
    ]
    show.table(columns, rows)
    for item in listed:
        if item["broken"]:
            show.note(f"broken: {item['broken']}")
    if not listed:
        show.note("none; a benchmark is a YAML file in benchmarks/ with `benchmark:`, `experiment:`, `workload:`")


@command.command(help="Targets that were benchmarked in this workspace.")
@options.json_option
@click.pass_context
def targets(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import catalogue

    listed = catalogue.targets(options.workspace(ctx))
    if as_json:
        show.as_json(listed)
        return
    columns = ("target", "experiment", "trials", "last run")
    show.table(columns, [(row["target"], row["experiment"], row["trials"], row["last_run"]) for row in listed])
