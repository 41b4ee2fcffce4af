"""Show an experiment, a benchmark, or a run: inputs and metrics, or points and where they ran."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.catalog import BenchmarkDetails, InputKey

_DEEPEST = 2


@commands.verb(
    f"{__doc__}\n\nNAME is an experiment or a registered benchmark; else a run: @last, its id or the beginning of "
    "it, or the scenario that it is the last run of.",
    "bench show vector.search",
    "bench show @last",
    "bench show 20260315 --json",
)
@click.argument("name", shell_complete=commands.complete_experiment)
@click.option("--version", help="Version of the experiment; by default the newest.")
def command(workspace: Workspace, name: str, version: str | None, as_json: bool) -> None:
    if version is None and not workspace.catalog.is_listed(name) and _show_run(workspace, name, as_json):
        return
    details = workspace.catalog.show(name, version)
    if as_json:
        screen.as_json(details.to_dict())
        return
    if details.benchmark:
        _show_benchmark(details.benchmark)
    click.echo(f"{details.name} {details.version}  ({details.distribution} {details.distribution_version})")
    if details.description:
        click.echo(screen.on_stdout(details.description))
    if details.deprecated:
        instead = f"; use {details.deprecated.replaced_by}" if details.deprecated.replaced_by else ""
        click.echo(f"DEPRECATED: {details.deprecated.reason}{instead}")
    if details.bridge:
        click.echo(f"written for {details.bridge}: {details.object}")
    if details.environment:
        wanted = ", ".join(details.environment)
        click.echo(f"installed apart; in a scenario: runtime: {{kind: venv, requirements: [{wanted}]}}")
    for line in details.notes:
        click.echo(f"note: {line}")
    _show_inputs("target", details.target, {})
    _show_inputs("workload", details.workload, details.benchmark.workload if details.benchmark else {})
    if details.metrics:
        click.echo("\nmetrics")
        rows = [(item.name, item.unit, item.direction, item.formula) for item in details.metrics]
        screen.table(("metric", "unit", "better", "formula"), rows, whole=("metric", "unit", "better"))
    for item in details.data:
        click.echo(f"data  {item.name}  {item.source}  sha256 {item.sha256[:12]}  {item.licence}")
    needs = [f"{key} {value}" for key, value in details.resources if value is not None]
    click.echo(f"resources  {', '.join(needs)}")


def _show_inputs(title: str, inputs: "list[InputKey]", fixed: dict[str, Any]) -> None:
    if inputs:
        click.echo(f"\n{title}")
        # The same key of several kinds that hold the same model is shown once.
        rows = list(dict.fromkeys(_rows(inputs, fixed)))
        screen.table(("input", "type", "default", "meaning"), rows, whole=("input",))


def _show_run(workspace: Workspace, name: str, as_json: bool) -> bool:
    """Show the run with this name. Return False if there is none."""
    try:
        run = workspace[name]
    except BenchError:
        if name.startswith("@"):
            raise
        return False
    overview = run.overview()
    points = run.points() if overview.hosts else None
    if as_json:
        screen.as_json(screen.plain(overview) | {"outcomes": dict(overview.outcomes), "points_table": points or []})
        return True
    outcomes = screen.outcomes(dict(overview.outcomes))
    done = f"{overview.done} of {screen.count(overview.trials, 'trial')}{f', {outcomes}' if outcomes else ''}"
    hosts = ", ".join(overview.hosts) or overview.submitted_from
    site = f", site {overview.site}" if overview.site else ""
    screen.facts([
        ("run", f"{overview.run_id}  ({overview.scenario}, {overview.created[:19]})"),
        ("experiment", f"{overview.experiment} {overview.version}  ({overview.distribution})"),
        ("state", f"{overview.state}: {done}"),
        ("where", f"{overview.executor}, {overview.runtime}{site}: {hosts}"),
        *([("scenario", overview.scenario_file)] if overview.scenario_file else []),
        *([("schedule", f"{overview.schedule}, due {overview.due}")] if overview.schedule else []),
    ])  # fmt: skip
    if points:
        click.echo()
        points.show()
    screen.note("next:  " + "\n       ".join(overview.next_commands))
    return True


def _show_benchmark(benchmark: "BenchmarkDetails") -> None:
    """Print the name of a benchmark, its file, and what it fixes."""
    click.echo(f"benchmark {benchmark.name}  ({benchmark.origin}, {benchmark.file})")
    if benchmark.description:
        click.echo(benchmark.description)
    for part in ("version", "workload", "axes", "exclude", "resources", "limits"):
        if part in benchmark.content:
            click.echo(f"  fixed {part:<9} {_one_line(benchmark.content[part])}")
    click.echo("\nits experiment")


def _one_line(value: Any) -> str:
    """Return `vectors 5000, k 10`, with nested lists and mappings as JSON."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ", ".join(f"{key} {item if isinstance(item, str) else json.dumps(item)}" for key, item in value.items())


def _rows(
    inputs: "list[InputKey]", fixed: dict[str, Any], above: str = "", kind: str = "", depth: int = 0
) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row per key, and below it those of the models that it may hold, by their full names, each with its kind.

    Models nested more than two levels deep are shown only with --json.
    """
    for item in inputs:
        name = f"{above}{item.name}"
        default = "required" if item.required else _default(item.default)
        if name in fixed:
            default = f"fixed: {fixed[name]}"
        yield name, item.type, default, f"{kind}: {item.description}" if kind else item.description
        for variant in item.variants if depth < _DEEPEST else ():
            yield from _rows(variant.fields, {}, f"{name}{variant.above}", variant.kind, depth + 1)


def _default(value: Any) -> str:
    """Return a value as it would be written; for a model with a kind, the kind, because its keys follow."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return str(value["kind"]) if isinstance(value, dict) and "kind" in value else str(value)
