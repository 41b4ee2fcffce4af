"""The `baictl` command, for people who know Benchmark AI: its words for what `bench` does, by the same functions."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import bench, commands, folder_option, run
from benchhouse.cli.commands import CommandGroup, help_with
from benchhouse.cli.verbs import completion, infra, logs, show, status, stop
from benchhouse.cli.verbs.submit import show_submitted
from benchhouse.schema.version import __version__

_CLUSTER = "bai"
_NOUN = click.argument("noun", type=click.Choice(["benchmark"]), default="benchmark", metavar="benchmark")


@click.group(
    cls=CommandGroup,
    **help_with(
        "Benchmark AI's words for what bench does: benchmarks are runs, described by TOML files.\n\nState is kept in "
        "this folder, or in that of -C or $BENCH_WORKSPACE.",
        "baictl run benchmark --descriptor=resnet50-descriptor.toml",
        "baictl get benchmark --name=20260315",
        "baictl create infra --name lab --provider kind",
    ),
)
@folder_option
@click.version_option(__version__, message="baictl of benchhouse %(version)s")
@click.pass_context
def baictl(ctx: click.Context, folder: str | None) -> None:
    assert bench.callback
    ctx.invoke(bench.callback, folder=folder)


create_group = baictl.subgroup("create", "Make infrastructure.", "baictl create infra --apply")
destroy_group = baictl.subgroup("destroy", "Remove infrastructure.", "baictl destroy infra infra/bai --apply")
run_group = baictl.subgroup("run", "Run a benchmark.", "baictl run benchmark --descriptor=descriptor.toml")
get_group = baictl.subgroup("get", "Show a benchmark's results.", "baictl get benchmark --name=@last")


def _defaulted(command: click.Command, typed: str, **defaults: Any) -> click.Command:
    """Return the same command under its name here, with some required options made optional."""

    def callback(**given: Any) -> Any:
        filled = {name: defaults.get(name) if value is None else value for name, value in given.items()}
        return click.get_current_context().invoke(command, **filled)

    params = [_optional(item, defaults[str(item.name)]) if item.name in defaults else item for item in command.params]
    text = (command.help or "").partition("\n\n\b")[0]
    return click.Command("infra", params=params, callback=callback, **help_with(text, typed))


def _optional(option: click.Parameter, default: str) -> click.Parameter:
    assert isinstance(option, click.Option)
    return click.Option(option.opts, type=option.type, help=f"{option.help}  [default: {default}]")


create_group.add_command(_defaulted(infra.create, "baictl create infra --apply", provider="aws", name=_CLUSTER))
destroy_group.add_command(_defaulted(infra.destroy, "baictl destroy infra infra/bai --apply"))
baictl.add_command(completion.command, "completion")


def _name_option(**settings: Any) -> commands.Decorator:
    return click.option("--name", metavar="ID", shell_complete=commands.complete_run, **settings)


@run_group.verb(
    "Start what a descriptor says in the background; with `scheduling` it is kept as a schedule for `bench agent`.",
    "baictl run benchmark --descriptor=descriptor.toml   prints the run's id",
    "baictl run benchmark --descriptor=descriptor.toml --executor kubernetes",
    name="benchmark",
)
@click.option("--descriptor", required=True, type=commands.FILE, help="The TOML file.")
@commands.where_options
def run_benchmark(workspace: Workspace, /, descriptor: Path, as_json: bool, **where: Any) -> None:
    if workspace.convert(descriptor, **where).scheduling:
        standing = workspace.schedules.add(descriptor, replace=True, **where)
        if as_json:
            screen.as_json(standing)
            return
        click.echo(f"{standing.name}: next run {standing.next_due}")
        screen.note("carried out by:  bench agent; to begin one now:  bench schedule run-now " + standing.name)
        return
    show_submitted(workspace.submit(descriptor, progress=screen.RunProgress(), new=True, **where), as_json)


@get_group.verb(
    "Results of a benchmark: points, and where they ran.",
    "baictl get benchmark --name=@last",
    "baictl get benchmark --name=20260315 --json",
    name="benchmark",
)
@_name_option(required=True, help="Its id or the beginning of it; @last.")
def get_benchmark(workspace: Workspace, name: str, as_json: bool) -> Any:
    workspace.collected(name)
    return click.get_current_context().invoke(show.command, name=name, version=None, as_json=as_json)


@baictl.verb("Benchmarks that were run here, and how far they are.", "baictl list", name="list")
@_NOUN
def list_(workspace: Workspace, noun: str, as_json: bool) -> Any:
    return click.get_current_context().invoke(status.command, run=None, watch=False, as_json=as_json)


@baictl.verb("How far a benchmark is.", "baictl status --name=@last --watch", name="status")
@_NOUN
@_name_option(default="@last", help="Its id; by default the newest.")
@click.option("--watch", is_flag=True, help="Refresh until it has ended.")
def status_(workspace: Workspace, noun: str, name: str, watch: bool, as_json: bool) -> Any:
    return click.get_current_context().invoke(status.command, run=name, watch=watch, as_json=as_json)


@baictl.verb("What a benchmark printed.", "baictl logs --name=@last --follow", name="logs")
@_NOUN
@_name_option(default="@last", help="Its id; by default the newest.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until it has ended.")
def logs_(workspace: Workspace, noun: str, name: str, follow: bool, as_json: bool) -> Any:
    return click.get_current_context().invoke(logs.tail, run=name, follow=follow, as_json=as_json)


@baictl.verb(
    "End a benchmark and all that it started, and forget a schedule of that name; evidence is kept.",
    "baictl delete benchmark --name=@last",
    name="delete",
)
@_NOUN
@_name_option(required=True, help="Its id, @last, or the name of a schedule.")
def delete(workspace: Workspace, noun: str, name: str, as_json: bool) -> Any:
    if name in {item.name for item in workspace.schedules.list()}:
        workspace.schedules.remove(name)
        screen.as_json({"removed": name}) if as_json else click.echo(f"the schedule {name} is removed")
        return None
    return click.get_current_context().invoke(stop.command, run=name, as_json=as_json)


def main() -> None:
    run(baictl, "baictl")
