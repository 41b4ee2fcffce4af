"""Options that several verbs share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from benchhouse.schema.layout import Workspace

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def nexus_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--nexus", metavar="DIR", envvar="BENCH_NEXUS", help="Folder with packages/; else the nearest above."
    )(function)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from benchhouse.api import places
    from benchhouse.api.following import list_runs

    names = ["@last", *reversed(list_runs(places.workspace(ctx.find_root().params.get("folder"))))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_experiment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from benchhouse.api import catalogue

    listed = catalogue.experiments()
    return [CompletionItem(item.name, help=item.description) for item in listed if item.name.startswith(incomplete)]


def run_argument(default: str | None = "@last", **extra: Any) -> Decorator:
    return click.argument("run", default=default, shell_complete=complete_run, **extra)


def scenario_argument(required: bool = True) -> Decorator:
    return click.argument("scenario", required=required, type=click.Path(path_type=Path))


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where it runs; without them as the scenario says, else the site."""
    for option in (
        click.option("--site", metavar="SITE", help="Site profile, by name or file; see: bench site list."),
        click.option("--runtime", metavar="NAME", help="What jobs run inside, whatever the scenario says."),
        click.option("--executor", "--engine", metavar="NAME", help="Where jobs go, whatever the scenario says."),
    ):
        function = option(function)
    return function


def workspace(ctx: click.Context) -> Workspace:
    from benchhouse.api import places

    return places.workspace(ctx.obj)
