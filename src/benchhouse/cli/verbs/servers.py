"""Servers from recipes: list, start, ps, check, logs, stop."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples
from benchhouse.schema.errors import BenchError, Exit

_EXAMPLES = """\b
Examples:
  bench servers list                   recipes, and which programs are here
  bench servers start postgres         until: bench servers stop ID
  bench servers check ID               exit code 0 when it answers
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    "list", help="Recipes, with the version of each program that is here." + examples("bench servers list")
)
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import servers

    rows = servers.recipes(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(rows)
        return
    good = [row for row in rows if not row["broken"]]
    screen.table(
        ("recipe", "version", "licence", "description"),
        [(row["recipe"], _version(row), row["licence"], row["description"].partition(": ")[0]) for row in good],
        whole=("recipe", "version"),
        spare=("licence",),
    )
    for row in rows:
        if row["broken"]:
            screen.note(row["broken"])
    screen.note("start one:  bench servers start RECIPE")


def _version(row: dict[str, Any]) -> str:
    if row["program"]:
        return row["version"] or "here"
    return "in its image" if row["pinned"] else "not installed"


@command.command(
    "show",
    help="A recipe as YAML: copy it into recipes/ to change it."
    + examples("bench servers show postgres > recipes/postgres.yaml"),
)
@click.argument("recipe")
@click.pass_context
def show_(ctx: click.Context, recipe: str) -> None:
    from benchhouse.api import servers

    click.echo(servers.recipe_text(options.workspace(ctx).folder, recipe), nl=False)


@command.command(
    help="Check files of recipes; nothing is started." + examples("bench servers validate recipes/postgres.yaml")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.json_option
def validate(files: tuple[Path, ...], as_json: bool) -> int:
    from benchhouse.api import servers
    from benchhouse.cli import show_error

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
@click.option("-p", "--parameter", "given", multiple=True, metavar="NAME=VALUE", help="A parameter of the recipe.")
@click.option("--replicas", type=click.IntRange(1, 256), help="How many servers of the kind.")
@click.option("--timeout", help="Longest time until it is ready, e.g. 2m.")
@click.option("--executor", metavar="NAME", help="Where it runs: local, or slurm for a job on a compute node.")
@click.option("--site", metavar="SITE", help="Site profile, by name or file.")
@click.option("--time", "job_time", help="Time limit of its batch job, e.g. 2h.")
@options.json_option
@click.pass_context
def start(
    ctx: click.Context,
    recipe: str,
    given: tuple[str, ...],
    replicas: int | None,
    timeout: str | None,
    executor: str | None,
    site: str | None,
    job_time: str | None,
    as_json: bool,
) -> None:
    from benchhouse.api import servers

    started = servers.start(
        options.workspace(ctx).folder, recipe, _parameters(given), replicas, _seconds(timeout) if timeout else None, screen.note,
        executor, site, _seconds(job_time) if job_time else None,
    )  # fmt: skip
    if as_json:
        screen.as_json(started)
        return
    click.echo(started["id"])
    for endpoint in started["endpoints"]:
        click.echo(endpoint)
    screen.note(f"ready after {started['start_s']:.1f} s; stop it:  bench servers stop {started['id']}")


def _parameters(given: tuple[str, ...]) -> dict[str, str]:
    chosen = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise BenchError(f"'{item}' is not NAME=VALUE", "for instance: -p model=/models/tiny")
        chosen[name] = value
    return chosen


def _seconds(text: str) -> float:
    from benchhouse.schema.quantities import parse_seconds

    try:
        seconds = float(parse_seconds(text))
    except ValueError as error:
        raise BenchError(str(error)) from error
    if seconds <= 0:
        raise BenchError(f"the time must be above zero, found {text}")
    return seconds


@command.command(help="Servers that run: those started here and those attached to runs." + examples("bench servers ps"))
@options.json_option
@click.pass_context
def ps(ctx: click.Context, as_json: bool) -> None:
    from benchhouse.api import servers

    rows = servers.instances(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(rows)
        return
    if not rows:
        screen.note("no server runs here; start one:  bench servers start RECIPE")
        return
    screen.table(
        ("id", "job", "health", "endpoint", "version", "since", "run"),
        [
            (
                row["id"],
                row["job"],
                row["phase"],
                ", ".join(row["endpoints"]),
                row["version"],
                row["started"],
                row["run_id"],
            )
            for row in rows
        ],
        whole=("id", "job", "health", "endpoint"),
        spare=("version", "since", "run"),
    )


@command.command(
    help="Ask a server whether it is well; exit code 0 when it answers, else 1."
    + examples("bench servers check ID   as bench servers ps tells it")
)
@click.argument("id_", metavar="ID")
@click.option("--timeout", default="5s", show_default=True, help="Longest time until it answers.")
@options.json_option
@click.pass_context
def check(ctx: click.Context, id_: str, timeout: str, as_json: bool) -> int:
    from benchhouse.api import servers

    found = servers.check(options.workspace(ctx).folder, id_, _seconds(timeout))
    if as_json:
        screen.as_json(found)
    elif found["healthy"]:
        click.echo(f"{found['id']} answers: {', '.join(found['endpoints'])}")
    else:
        why = f": {found['message']}" if found["message"] else ""
        click.echo(f"{found['id']} does not answer ({found['phase']}){why}")
        screen.note(f"its words:  bench servers logs {found['id']}")
    return Exit.GOOD if found["healthy"] else Exit.TRIAL_FAILED


@command.command(help="The last lines that a server wrote." + examples("bench servers logs ID -n 20"))
@click.argument("id_", metavar="ID")
@click.option("-n", "lines", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.pass_context
def logs(ctx: click.Context, id_: str, lines: int) -> None:
    from collections import deque

    from benchhouse.api import servers

    folder = servers.logs(options.workspace(ctx).folder, id_)
    for path in sorted(folder.glob("*.log")):
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in deque(file, lines):
                click.echo(line, nl=False)
    screen.note(f"all of it: {folder}")


@command.command(
    help="Stop a server, or with --all each that was started here."
    + examples("bench servers stop ID", "bench servers stop --all")
)
@click.argument("id_", metavar="ID", required=False)
@click.option("--all", "everything", is_flag=True, help="All that were started by `bench servers start`.")
@options.json_option
@click.pass_context
def stop(ctx: click.Context, id_: str | None, everything: bool, as_json: bool) -> None:
    from benchhouse.api import servers

    workspace = options.workspace(ctx).folder
    if (id_ is None) != everything:
        raise BenchError("give the id of a server, or --all", "see: bench servers ps")
    stopped = servers.stop_all(workspace) if id_ is None else [servers.stop(workspace, id_)["id"]]
    if as_json:
        screen.as_json({"stopped": stopped})
        return
    click.echo(f"stopped {', '.join(stopped)}" if stopped else "no server was running")
