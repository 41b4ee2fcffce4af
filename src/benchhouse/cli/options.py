"""Options that several verbs share."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from benchhouse.api.workspace import Workspace


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2
    """A time above zero such as `90s`, `10m` or `1h30m`, as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from benchhouse.schema.quantities import parse_seconds

        try:
            seconds = float(parse_seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"the time must be above zero, not {value}", param, ctx)
        return seconds


DURATION = Duration()
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def nexus_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--nexus", metavar="DIR", envvar="BENCH_NEXUS", help="Folder with packages/; else the nearest above."
    )(function)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    here = _workspace_to_complete(ctx)
    names = ["@last", *(run.id for run in reversed(here.runs()))] if here else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_experiment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    here = _workspace_to_complete(ctx)
    listed = here.catalog.experiments(installed_only=True) if here else []
    return [CompletionItem(item.name, help=item.description) for item in listed if item.name.startswith(incomplete)]


def complete_plug(
    group: Literal["executors", "runtimes"],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Names of executors or runtimes."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        here = _workspace_to_complete(ctx)
        names = here.catalog.plugs(group) if here else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def _workspace_to_complete(ctx: click.Context) -> "Workspace | None":
    """None where `-C` names no folder: a shell that completes a word can't show the error."""
    from benchhouse.api.workspace import Workspace
    from benchhouse.schema.errors import BenchError

    try:
        return Workspace(ctx.find_root().params.get("folder"))
    except BenchError:
        return None


def run_argument(default: str | None = "@last", **extra: Any) -> Decorator:
    return click.argument("run", default=default, shell_complete=complete_run, **extra)


def scenario_argument(required: bool = True) -> Decorator:
    return click.argument("scenario", required=required, type=click.Path(path_type=Path))


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where it runs; without them as the scenario says, else the site."""
    for option in (
        click.option("--site", metavar="SITE", help="Site profile, by name or file; see: bench site list."),
        click.option("--runtime", metavar="NAME", help="What jobs run inside, whatever the scenario says.",
                     shell_complete=complete_plug("runtimes")),
        click.option("--executor", "--engine", metavar="NAME", help="Where jobs go, whatever the scenario says.",
                     shell_complete=complete_plug("executors")),
    ):  # fmt: skip
        function = option(function)
    return function


def where_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--where", "conditions", multiple=True, metavar="PROPERTY=VALUE", help="Of a logical benchmark; repeatable."
    )(function)


def logical_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """SCENARIO may be `logical:ID`: these say which part of that logical benchmark becomes the scenario."""

    @functools.wraps(function)
    def made(**given: Any) -> Any:
        names = ("wanted", "conditions", "bound", "settings", "repetitions")
        wanted, conditions, bound, settings, repetitions = (given.pop(name) for name in names)
        scenario = given.get("scenario")
        if scenario is not None and str(scenario).startswith("logical:"):
            given["scenario"] = workspace(click.get_current_context()).leaderboards.scenario(
                str(scenario).removeprefix("logical:"),
                targets=wanted,
                where=pairs(conditions, "--where"),
                settings=pairs(settings, "--set"),
                repetitions=repetitions or 1,
                experiment=bound,
            )
        elif wanted or conditions or bound or settings or repetitions:
            raise click.UsageError("--target, --where, --experiment, --set and --repetitions go with logical:ID")
        return function(**given)

    decorated: Callable[..., Any] = made
    for option in (
        click.option("--repetitions", type=click.IntRange(min=1), help="With logical:ID: trials a point."),
        click.option("--set", "settings", multiple=True, metavar="INPUT=VALUE", help="With logical:ID: an open input."),
        click.option("--experiment", "bound", metavar="NAME", help="With logical:ID: the binding to run by."),
        where_option,
        click.option("--target", "wanted", multiple=True, metavar="NAME", help="With logical:ID: what to measure."),
    ):
        decorated = option(decorated)
    return decorated


def pairs(texts: tuple[str, ...], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """`KEY=VALUE` of a repeatable option; `form` is how its help writes that."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text!r} is not {form}")
        if key in values:
            raise click.UsageError(f"{option} {key} is given twice")
        values[key] = value
    return values


def workspace(ctx: click.Context) -> "Workspace":
    """The workspace that `-C` names, else the current folder."""
    from benchhouse.api.workspace import Workspace

    return Workspace(ctx.obj)
