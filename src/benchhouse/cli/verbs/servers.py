"""Servers from recipes: list, start, ps, check, logs, stop."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.servers import RecipeStatus, StartedServer

_EXAMPLES = """\b
Examples:
  bench servers list                   recipes, and which programs are installed
  bench servers start postgres         until: bench servers stop ID
  bench servers check ID               exit code 0 when it answers
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    "list", help="List recipes, with the version of each installed program." + examples("bench servers list")
)
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    recipes = options.workspace(ctx).servers.recipes()
    if as_json:
        screen.as_json(screen.plain(recipes))
        return
    screen.table(
        ("recipe", "version", "licence", "description"),
        [
            (item.recipe, _version(item), item.licence, item.description.partition(": ")[0])
            for item in recipes
            if not item.broken
        ],
        whole=("recipe", "version"),
        spare=("licence",),
    )
    for item in recipes:
        if item.broken:
            screen.note(item.broken)
    screen.note("start one:  bench servers start RECIPE")


def _version(item: "RecipeStatus") -> str:
    if item.program:
        return item.version or "installed"
    return "in its image" if item.pinned else "not installed"


@command.command(
    "show",
    help="Print a recipe as YAML; to change it, save it in recipes/."
    + examples("bench servers show postgres > recipes/postgres.yaml"),
)
@click.argument("recipe")
@click.pass_context
def show_(ctx: click.Context, recipe: str) -> None:
    from benchhouse.api.servers import recipe_text

    click.echo(recipe_text(options.workspace(ctx).servers.recipe(recipe)), nl=False)


@command.command(
    help="Check recipe files without starting anything." + examples("bench servers validate recipes/postgres.yaml")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
@click.pass_context
def validate(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.cli import show_error

    servers = options.workspace(ctx).servers
    results: list[dict[str, Any]] = []
    bad = False
    for path in files:
        try:
            recipe = servers.validate(path)
            results.append({"file": str(path), "recipe": recipe.name, "problems": []})
            if not as_json:
                click.echo(f"{path}: ok, recipe {recipe.name}")
        except BenchError as error:
            bad = True
            problems = [problem.as_dict() for problem in getattr(error, "problems", [])]
            results.append({"file": str(path), "recipe": None, "problems": problems or [{"message": error.message}]})
            if not as_json:
                show_error(error)
    if as_json:
        screen.as_json(results)
    return Exit.BAD_INPUT if bad else Exit.GOOD


@command.command(
    help="Start a server, wait until it is ready, and leave it running."
    + examples(
        "bench servers start postgres",
        "bench servers start postgres --replicas 2 --timeout 2m",
        "bench servers start postgres --executor slurm --time 2h   a job on a compute node",
    )
)
@click.argument("recipe")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the recipe.")
@click.option("--replicas", type=click.IntRange(1, 256), help="Number of servers.")
@click.option("--timeout", "timeout_s", type=options.DURATION, help="Startup timeout, e.g. 2m.")
@click.option("--executor", metavar="NAME", help="Where it runs: local, or slurm for a job on a compute node.")
@click.option("--site", metavar="SITE", help="Site profile, by name or file.")
@click.option("--time", "time_s", type=options.DURATION, help="Time limit of its batch job, e.g. 2h.")
@options.json_option
@click.pass_context
def start(
    ctx: click.Context,
    /,
    recipe: str,
    parameters: tuple[str, ...],
    replicas: int | None,
    timeout_s: float | None,
    as_json: bool,
    **placement: Any,
) -> None:
    from benchhouse.api.servers import Placement

    started = options.workspace(ctx).servers.start(
        recipe,
        options.pairs(parameters, "--parameter"),
        replicas=replicas,
        timeout_s=timeout_s,
        placement=Placement(**placement),
        progress=screen.RunProgress(),
    )
    show_started(started, as_json)


def show_started(server: "StartedServer", as_json: bool) -> None:
    """Its id and endpoints."""
    if as_json:
        screen.as_json(screen.plain(server))
        return
    click.echo(server.id)
    for endpoint in server.endpoints:
        click.echo(endpoint)
    screen.note(f"ready after {server.start_s:.1f} s; stop it:  bench servers stop {server.id}")


@command.command(
    help="List running servers: those started here and those attached to runs." + examples("bench servers ps")
)
@options.json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    servers = options.workspace(ctx).servers.running()
    if as_json:
        screen.as_json(screen.plain(servers))
        return
    if not servers:
        screen.note("no server is running; start one:  bench servers start RECIPE")
        return
    screen.table(
        ("id", "job", "health", "endpoint", "version", "since", "run"),
        [
            (item.id, item.job, item.phase, ", ".join(item.endpoints), item.version, item.started, item.run_id)
            for item in servers
        ],
        whole=("id", "job", "health", "endpoint"),
        spare=("version", "since", "run"),
    )


@command.command(
    help="Check whether a server is healthy; exit code 0 when it answers, else 1."
    + examples("bench servers check ID   as listed by bench servers ps")
)
@click.argument("id_", metavar="ID")
@click.option(
    "--timeout", "timeout_s", type=options.DURATION, default="5s", show_default=True, help="Timeout of the answer."
)
@options.json_option
@click.pass_context
def check(ctx: click.Context, id_: str, timeout_s: float, as_json: bool) -> int:
    server = options.workspace(ctx).servers.check(id_, timeout_s=timeout_s)
    if as_json:
        screen.as_json(screen.plain(server))
    elif server.healthy:
        click.echo(f"{server.id} answers: {', '.join(server.endpoints)}")
    else:
        reason = f": {server.message}" if server.message else ""
        click.echo(f"{server.id} does not answer ({server.phase}){reason}")
        screen.note(f"its output:  bench servers logs {server.id}")
    return Exit.GOOD if server.healthy else Exit.TRIAL_FAILED


@command.command(help="Print the last lines that a server wrote." + examples("bench servers logs ID -n 20"))
@click.argument("id_", metavar="ID")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Number of lines.")
@click.pass_context
def logs(ctx: click.Context, id_: str, lines: int) -> None:
    output = options.workspace(ctx).servers.logs(id_, lines=lines)
    for line in output.lines:
        click.echo(line, nl=False)
    screen.note(f"all of it: {output.folder}")


@command.command(
    help="Stop a server, or with --all every server that was started here."
    + examples("bench servers stop ID", "bench servers stop --all")
)
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "everything", is_flag=True, help="Stop all that were started by `bench servers start`.")
@options.json_option
@click.pass_context
def stop(ctx: click.Context, id_: str | None, everything: bool, as_json: bool) -> None:
    if (id_ is None) != everything:
        raise BenchError("give the id of a server, or --all", "see: bench servers ps")
    servers = options.workspace(ctx).servers
    ended = servers.stop_all() if id_ is None else servers.stop(id_)
    if as_json:
        screen.as_json(screen.plain(ended))
        return
    click.echo(f"stopped {', '.join(ended.stopped)}" if ended.stopped else "no server was running")
