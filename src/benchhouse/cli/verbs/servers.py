"""Servers from recipes: list, start, ps, check, logs, stop."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.cli.file_checks import check_files
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.servers import RecipeStatus, StartedServer

command = commands.group(
    __doc__,
    "bench servers list   recipes, and which programs are installed",
    "bench servers start postgres   until: bench servers stop ID",
    "bench servers check ID   exit code 0 when it answers",
)


@command.verb("List recipes, with the version of each installed program.", "bench servers list")
def list_(workspace: Workspace, as_json: bool) -> None:
    recipes = workspace.servers.recipes()
    if as_json:
        screen.as_json(recipes)
        return
    rows = [
        (item.recipe, _version(item), item.licence, item.description.partition(": ")[0])
        for item in recipes
        if not item.broken
    ]
    columns = ("recipe", "version", "licence", "description")
    screen.table(columns, rows, whole=("recipe", "version"), spare=("licence",))
    for item in recipes:
        if item.broken:
            screen.note(item.broken)
    screen.note("start one:  bench servers start RECIPE")


def _version(item: "RecipeStatus") -> str:
    if item.program:
        return item.version or "installed"
    return "in its image" if item.pinned else "not installed"


@command.verb(
    "Print a recipe as YAML; to change it, save it in recipes/.",
    "bench servers show postgres > recipes/postgres.yaml",
    json=False,
)
@click.argument("recipe")
def show_(workspace: Workspace, recipe: str) -> None:
    from benchhouse.api.servers import recipe_text

    click.echo(recipe_text(workspace.servers.recipe(recipe)), nl=False)


@command.verb("Check recipe files without starting anything.", "bench servers validate recipes/postgres.yaml")
@click.argument("files", nargs=-1, required=True, type=commands.FILE)
def validate(workspace: Workspace, files: tuple[Path, ...], as_json: bool) -> int:
    def check(path: Path) -> tuple[dict[str, Any], str]:
        recipe = workspace.servers.validate(path)
        return {"recipe": recipe.name, "problems": []}, f"ok, recipe {recipe.name}"

    def on_error(error: BenchError, problems: list[dict[str, Any]]) -> dict[str, Any]:
        return {"recipe": None, "problems": problems or [{"message": error.message}]}

    return check_files(files, check, as_json, on_error)[0]


@command.verb(
    "Start a server, wait until it is ready, and leave it running.",
    "bench servers start postgres",
    "bench servers start postgres --replicas 2 --timeout 2m",
    "bench servers start postgres --executor slurm --time 2h   a job on a compute node",
    "bench servers start vllm --executor slurm --gpus 1 --mem 64G --partition gpu -p model=/data/llama",
)
@click.argument("recipe")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="Parameter of the recipe.")
@click.option("--replicas", type=click.IntRange(1, 256), help="Number of servers.")
@click.option("--timeout", "timeout_s", type=commands.DURATION, help="Startup timeout, e.g. 2m.")
@commands.job_options
def start(workspace: Workspace, /, recipe: str, parameters: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    placement = commands.placement_of(settings)
    values = commands.pairs(parameters, "--parameter")
    started = workspace.servers.start(recipe, values, placement=placement, progress=screen.RunProgress(), **settings)
    show_started(started, as_json)


def show_started(server: "StartedServer", as_json: bool) -> None:
    """Print the id and endpoints of a server."""
    if as_json:
        screen.as_json(server)
        return
    click.echo(server.id)
    for endpoint in server.endpoints:
        click.echo(endpoint)
    screen.note(f"ready after {server.start_s:.1f} s; stop it:  bench servers stop {server.id}")


@command.verb("List running servers: those started here and those attached to runs.", "bench servers ps")
def ps(workspace: Workspace, as_json: bool) -> None:
    servers = workspace.servers.running()
    if as_json:
        screen.as_json(servers)
        return
    if not servers:
        screen.note("no server is running; start one:  bench servers start RECIPE")
        return
    rows = [
        (item.id, item.job, item.phase, ", ".join(item.endpoints), item.version, item.started, item.run_id)
        for item in servers
    ]
    columns = ("id", "job", "health", "endpoint", "version", "since", "run")
    screen.table(columns, rows, whole=columns[:4], spare=columns[4:])


@command.verb(
    "Check whether a server is healthy; exit code 0 when it answers, else 1.",
    "bench servers check ID   as listed by bench servers ps",
)
@click.argument("id_", metavar="ID")
@click.option("--timeout", "timeout_s", type=commands.DURATION, default="5s", show_default=True,
              help="Timeout of the answer.")  # fmt: skip
def check(workspace: Workspace, id_: str, timeout_s: float, as_json: bool) -> int:
    server = workspace.servers.check(id_, timeout_s=timeout_s)
    if as_json:
        screen.as_json(server)
    elif server.healthy:
        click.echo(f"{server.id} answers: {', '.join(server.endpoints)}")
    else:
        reason = f": {server.message}" if server.message else ""
        click.echo(f"{server.id} does not answer ({server.phase}){reason}")
        screen.note(f"its output:  bench servers logs {server.id}")
    return Exit.GOOD if server.healthy else Exit.TRIAL_FAILED


@command.verb("Print the last lines that a server wrote.", "bench servers logs ID -n 20", json=False)
@click.argument("id_", metavar="ID")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="Number of lines.")
def logs(workspace: Workspace, id_: str, lines: int) -> None:
    output = workspace.servers.logs(id_, lines=lines)
    for line in output.lines:
        click.echo(line, nl=False)
    screen.note(f"all of it: {output.folder}")


@command.verb(
    "Stop a server, or with --all every server that was started here.",
    "bench servers stop ID",
    "bench servers stop --all",
)
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "everything", is_flag=True, help="Stop all that were started by `bench servers start`.")
def stop(workspace: Workspace, id_: str | None, everything: bool, as_json: bool) -> None:
    if (id_ is None) != everything:
        raise BenchError("give the id of a server, or --all", "see: bench servers ps")
    servers = workspace.servers
    ended = servers.stop_all() if id_ is None else servers.stop(id_)
    if as_json:
        screen.as_json(ended)
        return
    click.echo(f"stopped {', '.join(ended.stopped)}" if ended.stopped else "no server was running")
