"""Show an experiment or a benchmark: inputs, metrics, data, resources."""

import json
from typing import Any

import click

from benchhouse.cli import options, show


@click.command(help=__doc__)
@click.argument("name", shell_complete=options.complete_experiment)
@click.option("--version", "wanted", help="That version; the default is the newest.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, name: str, wanted: str | None, as_json: bool) -> None:
    from benchhouse.api import catalogue

    shown = catalogue.show(options.workspace(ctx), name, wanted)
    if as_json:
        show.as_json(shown)
        return
    fixed = _show_benchmark(shown["benchmark"]) if shown["benchmark"] else {}
    click.echo(f"{shown['name']} {shown['version']}  ({shown['distribution']} {shown['distribution_version']})")
    if shown["description"]:
        click.echo(shown["description"])
    if shown["deprecated"]:
        instead = shown["deprecated"].get("replaced_by")
        click.echo(f"DEPRECATED: {shown['deprecated']['reason']}{f'; use {instead}' if instead else ''}")
    for part in ("target", "workload"):
        if shown[part]:
            click.echo(f"\n{part}")
            inputs = [_row(item, fixed if part == "workload" else {}) for item in shown[part]]
            show.table(("input", "type", "default", "meaning"), inputs)
    if shown["metrics"]:
        click.echo("\nmetrics")
        columns = ("metric", "unit", "better", "formula")
        rows = [(item["name"], item["unit"], item["direction"] or "", item["formula"]) for item in shown["metrics"]]
        show.table(columns, rows)
    for item in shown["data"]:
        click.echo(f"data  {item['name']}  {item['source']}  sha256 {item['sha256'][:12]}  {item['licence']}")
    needs = [f"{key} {value}" for key, value in shown["resources"].items() if value is not None]
    click.echo(f"resources  {', '.join(needs)}")


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


def _row(item: dict[str, Any], fixed: dict[str, Any]) -> tuple[str, str, str, str]:
    default = "required" if item["required"] else str(item["default"])
    if item["name"] in fixed:
        default = f"fixed: {fixed[item['name']]}"
    return item["name"], item["type"], default, item["description"]
