"""Show an experiment or a benchmark: inputs, metrics, data, resources."""

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
    click.echo(f"{shown['name']} {shown['version']}  ({shown['distribution']} {shown['distribution_version']})")
    if shown["description"]:
        click.echo(shown["description"])
    if shown["deprecated"]:
        instead = shown["deprecated"].get("replaced_by")
        click.echo(f"DEPRECATED: {shown['deprecated']['reason']}{f'; use {instead}' if instead else ''}")
    for part in ("target", "workload"):
        if shown[part]:
            click.echo(f"\n{part}")
            show.table(("input", "type", "default", "meaning"), [_row(item) for item in shown[part]])
    if shown["metrics"]:
        click.echo("\nmetrics")
        columns = ("metric", "unit", "better", "formula")
        rows = [(item["name"], item["unit"], item["direction"] or "", item["formula"]) for item in shown["metrics"]]
        show.table(columns, rows)
    for item in shown["data"]:
        click.echo(f"data  {item['name']}  {item['source']}  sha256 {item['sha256'][:12]}  {item['licence']}")
    needs = [f"{key} {value}" for key, value in shown["resources"].items() if value is not None]
    click.echo(f"resources  {', '.join(needs)}")


def _row(item: dict[str, Any]) -> tuple[str, str, str, str]:
    default = "required" if item["required"] else str(item["default"])
    return item["name"], item["type"], default, item["description"]
