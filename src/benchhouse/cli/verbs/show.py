"""Show an experiment, a benchmark or a run: inputs and metrics, or points and where they ran."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace

_DEEPEST = 2


@click.command(
    help=f"{__doc__}\n\nNAME is an experiment or a registered benchmark; else a run: @last, its id or the beginning of "
    "it, or the scenario that it is the last run of."
    + examples("bench show vector.search", "bench show @last", "bench show 20260315 --json")
)
@click.argument("name", shell_complete=options.complete_experiment)
@click.option("--version", "wanted", help="That version; the default is the newest.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, name: str, wanted: str | None, as_json: bool) -> None:
    from benchhouse.api import catalogue

    workspace = options.workspace(ctx)
    if wanted is None and not catalogue.is_listed(workspace.folder, name) and _show_run(workspace, name, as_json):
        return
    shown = catalogue.show(workspace.folder, name, wanted)
    if as_json:
        screen.as_json(shown)
        return
    fixed = _show_benchmark(shown["benchmark"]) if shown["benchmark"] else {}
    click.echo(f"{shown['name']} {shown['version']}  ({shown['distribution']} {shown['distribution_version']})")
    if shown["description"]:
        click.echo(screen.on_stdout(shown["description"]))
    if shown["deprecated"]:
        instead = shown["deprecated"].get("replaced_by")
        click.echo(f"DEPRECATED: {shown['deprecated']['reason']}{f'; use {instead}' if instead else ''}")
    if shown["bridge"]:
        click.echo(f"written for {shown['bridge']}: {shown['object']}")
    for line in shown["notes"]:
        click.echo(f"note: {line}")
    for part in ("target", "workload"):
        if shown[part]:
            click.echo(f"\n{part}")
            # The same key of several kinds that hold the same model is told once.
            inputs = list(dict.fromkeys(_rows(shown[part], fixed if part == "workload" else {})))
            screen.table(("input", "type", "default", "meaning"), inputs, whole=("input",))
    if shown["metrics"]:
        click.echo("\nmetrics")
        columns = ("metric", "unit", "better", "formula")
        rows = [(item["name"], item["unit"], item["direction"] or "", item["formula"]) for item in shown["metrics"]]
        screen.table(columns, rows, whole=("metric", "unit", "better"))
    for item in shown["data"]:
        click.echo(f"data  {item['name']}  {item['source']}  sha256 {item['sha256'][:12]}  {item['licence']}")
    needs = [f"{key} {value}" for key, value in shown["resources"].items() if value is not None]
    click.echo(f"resources  {', '.join(needs)}")


def _show_run(workspace: "Workspace", name: str, as_json: bool) -> bool:
    """Show the run of that name, if there is one."""
    try:
        run = workspace[name]
    except BenchError:
        if name.startswith("@"):
            raise
        return False
    overview = run.overview()
    points = run.points() if overview.hosts else None
    if as_json:
        table = points.to_dicts() if points else []
        screen.as_json(screen.plain(overview) | {"outcomes": dict(overview.outcomes), "points_table": table})
        return True
    outcomes = screen.outcomes(dict(overview.outcomes))
    done = f"{overview.done} of {screen.count(overview.trials, 'trial')}{f', {outcomes}' if outcomes else ''}"
    hosts = ", ".join(overview.hosts) or overview.submitted_from
    site = f", site {overview.site}" if overview.site else ""
    for title, text in (
        ("run", f"{overview.run_id}  ({overview.scenario}, {overview.created[:19]})"),
        ("experiment", f"{overview.experiment} {overview.version}  ({overview.distribution})"),
        ("state", f"{overview.state}: {done}"),
        ("where", f"{overview.executor}, {overview.runtime}{site}: {hosts}"),
        ("scenario", overview.scenario_file),
    ):
        click.echo(f"{title:<10}  {text}")
    if points:
        click.echo()
        points.show()
    screen.note("next:  " + "\n       ".join(overview.next_commands))
    return True


def _show_benchmark(benchmark: dict[str, Any]) -> dict[str, Any]:
    """Its name, file and what it fixes; returns the fixed parameters of the workload."""
    click.echo(f"benchmark {benchmark['benchmark']}  ({benchmark['origin']}, {benchmark['file']})")
    if benchmark.get("description"):
        click.echo(benchmark["description"])
    fixed: dict[str, Any] = benchmark.get("workload", {})
    for part in ("version", "workload", "axes", "exclude", "resources", "limits"):
        if part in benchmark:
            click.echo(f"  fixed {part:<9} {_words(benchmark[part])}")
    click.echo("\nits experiment")
    return fixed


def _words(value: Any) -> str:
    """`vectors 5000, k 10`; a list or a mapping inside as JSON, one line."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ", ".join(
        f"{key} {_words(item) if isinstance(item, str) else json.dumps(item)}" for key, item in value.items()
    )


def _rows(
    items: list[dict[str, Any]], fixed: dict[str, Any], above: str = "", kind: str = "", depth: int = 0
) -> Iterator[tuple[str, str, str, str]]:
    """A row a key; below it those of the models that it may hold, by their full names, each with its kind in front.

    What lies deeper than two is left to --json.
    """
    for item in items:
        name, variants = f"{above}{item['name']}", item["variants"]
        default = "required" if item["required"] else _default(item["default"])
        if name in fixed:
            default = f"fixed: {fixed[name]}"
        yield name, item["type"], default, f"{kind}: {item['description']}" if kind else item["description"]
        for variant in variants if depth < _DEEPEST else ():
            yield from _rows(variant["fields"], {}, f"{name}{variant['above']}", variant["kind"], depth + 1)


def _default(value: Any) -> str:
    """As it would be written; of a model with a kind, the kind: its keys follow."""
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return str(value["kind"]) if isinstance(value, dict) and "kind" in value else str(value)
