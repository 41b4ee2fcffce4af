"""Infrastructure as plain files, with its cost: create, show, destroy."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.cli.commands import FILE

if TYPE_CHECKING:
    from benchhouse.api.infra import Infra

command = commands.group(
    __doc__,
    "bench infra create --provider kind --name lab   write the files of a local cluster",
    "bench infra create --provider aws --name team --nodes 1..8 --gpu-nodes 0..2",
    "bench infra show   files, cost, next command",
    "bench infra destroy infra/lab --apply   remove the cluster, and the files",
)
_folder_argument = click.argument(
    "folder",
    required=False,
    metavar="[DIR]",
    type=FILE,
    shell_complete=commands.completing(lambda ws: {f"infra/{path.name}": "" for path in ws.infra.folders()}),
)


@command.verb(
    "Write a cluster's files, and print what it is and costs. Nothing is started without --apply. The same command "
    "again finishes what was interrupted.",
    "bench infra create --provider aws --name team --nodes 1..8",
    "bench infra create --provider slurm --name lab --nodes 4 --apply   and start it",
)
@click.option("--provider", required=True, type=click.Choice(["aws", "kind", "slurm"]), help="What to describe.")
@click.option("--name", required=True, help="Name of the cluster: a-z, 0-9 and -, at most 32.")
@click.option("--region", help="Region of AWS.  [default: us-east-1]")
@click.option("--nodes", metavar="MIN..MAX", help="Nodes; kind and slurm have a fixed number.  [default: 1..4, or 2]")
@click.option("--gpu-nodes", metavar="MIN..MAX", help="Nodes with GPUs; aws only.  [default: 0]")
@click.option("--instance-type", metavar="TYPE", help="Of nodes on AWS.  [default: m6i.2xlarge]")
@click.option("--gpu-instance-type", metavar="TYPE", help="Of nodes with GPUs.  [default: g6.xlarge]")
@click.option("--output", metavar="DIR", type=FILE, help="Folder to write.  [default: infra/NAME]")
@click.option("--prices", metavar="FILE", type=FILE, help="Prices to estimate with, as in prices.yaml.")
@click.option("--apply", is_flag=True, help="Also run the commands that make it.")
def create(workspace: Workspace, provider: Any, name: str, apply: bool, as_json: bool, **settings: Any) -> None:
    plan = workspace.infra.plan(provider, name, **settings)
    if not as_json:
        _show_plan(plan, "to apply", plan.create)
    infra = workspace.infra.create(plan, apply=apply, note=screen.note)
    if as_json:
        screen.as_json(_document(infra))
        return
    _report_edited_files(infra)
    screen.note(f"{'applied' if infra.stage == 'applied' else 'wrote'} {_place(infra)}")
    _next(infra)


@command.verb(
    "Show what is there: files, who changed them, cost, next command.",
    "bench infra show",
    "bench infra show infra/lab --json",
)
@_folder_argument
def show_(workspace: Workspace, folder: Path | None, as_json: bool) -> None:
    infra = workspace.infra.show(folder)
    if as_json:
        screen.as_json(_document(infra))
        return
    written = infra.stage == "written"
    _show_plan(infra, "to apply" if written else "to destroy", infra.create if written else infra.destroy)
    screen.table(("file", "state"), [(file.name, file.state) for file in infra.files])
    _report_edited_files(infra)
    if missing := infra.named("missing", "outdated"):
        screen.note(f"a create or destroy was interrupted: {', '.join(missing)} as it was before")
    _next(infra)


@command.verb(
    "Remove what create made. Without --apply it only says what would be done. Edited files and files of others stay.",
    "bench infra destroy infra/lab   what would be run and removed",
    "bench infra destroy infra/lab --apply",
)
@_folder_argument
@click.option("--apply", is_flag=True, help="Run the commands, and remove the files.")
def destroy(workspace: Workspace, folder: Path | None, apply: bool, as_json: bool) -> None:
    infra = workspace.infra.show(folder)
    if not as_json:
        _show_destruction(infra)
    done = workspace.infra.destroy(folder, apply=apply, note=screen.note)
    if as_json:
        screen.as_json(_document(done))
        return
    if not apply:
        screen.note(f"nothing was done; to do it:  bench infra destroy {_place(infra)} --apply")
        return
    left = f"; left: {', '.join(file.name for file in done.files)}" if done.files else ""
    screen.note(f"destroyed {_place(infra)}{left}")


def _document(infra: "Infra") -> dict[str, Any]:
    keys = ("request", "folder", "stage", "files", "cost", "create", "destroy")
    return {key: getattr(infra, key) for key in keys}


def _place(infra: "Infra") -> str:
    """Return the folder as it is typed: paths are relative to the workspace."""
    root = commands.open_workspace(click.get_current_context()).root
    return str(infra.folder.relative_to(root) if infra.folder.is_relative_to(root) else infra.folder)


def _show_plan(infra: "Infra", title: str, steps: list[tuple[str, ...]]) -> None:
    request, cost = infra.request, infra.cost
    where = f" in {request.region}" if request.provider == "aws" else " on this machine"
    gpus = f", {request.gpu_nodes} of {request.gpu_instance_type}" if request.gpu_nodes.max else ""
    types = f" of {request.instance_type}{gpus}" if request.provider == "aws" else ""
    screen.facts(
        [
            ("cluster", f"{request.name} ({request.provider}){where}"),
            ("nodes", f"{request.nodes}{types}"),
            ("folder", _place(infra)),
            ("stage", _STAGES[infra.stage]),
        ]
    )
    _show_cost(cost)
    click.echo(f"{title}:")
    for step in steps:
        click.echo(f"  {' '.join(step)}")


_STAGES = {
    None: "not written yet",
    "written": "files only: nothing was started from here",
    "applying": "apply was begun and has not ended well: some of it may run, and cost",
    "applied": "applied",
    "destroying": "destroy was begun and has not ended well: some of it may still run, and cost",
    "destroyed": "destroyed; only files are left",
}


def _show_cost(cost: Any) -> None:
    if cost.lines:
        rows = [
            (line.what, line.least if line.least == line.most else f"{line.least}..{line.most}",
             "unknown" if line.hourly is None else f"{line.hourly:.4f}",
             *("" if line.hourly is None else f"{count * line.hourly:.2f}" for count in (line.least, line.most)))
            for line in cost.lines
        ]  # fmt: skip
        rows.append(("sum of an hour", "", "", f"{cost.least_hourly:.2f}", f"{cost.most_hourly:.2f}"))
        rows.append(("sum of a month", "", "", f"{cost.least_monthly:.0f}", f"{cost.most_monthly:.0f}"))
        titles = ("estimate", "count", f"{cost.currency}/h each", "at least", "at most")
        screen.table(titles, rows, right=titles[1:])
        click.echo(f"An estimate by list prices of {cost.as_of} in {cost.region}.")
    for note in cost.notes:
        click.echo(note[0].upper() + note[1:] + ".")


def _report_edited_files(infra: "Infra") -> None:
    if edited := infra.named("edited"):
        screen.note(f"edited since they were written, and left so: {', '.join(edited)}")


def _show_destruction(infra: "Infra") -> None:
    if infra.may_run:
        click.echo("to run:")
        for step in infra.destroy:
            click.echo(f"  {' '.join(step)}")
    own = infra.named("written", "outdated")
    click.echo(f"to remove in {_place(infra)}: {', '.join(own) or 'nothing'}")
    if kept := infra.named("edited", "made", "foreign"):
        click.echo(f"to leave: {', '.join(kept)}")


def _next(infra: "Infra") -> None:
    request, place = infra.request, _place(infra)
    again = f"bench infra create --provider {request.provider} --name {request.name} --output {place}"
    if infra.stage in ("destroying", "destroyed"):
        screen.note(f"next:  bench infra destroy {place} --apply")
    elif infra.stage == "applied" and not infra.named("missing", "outdated"):
        first = f"export SLURM_CONF={infra.folder}/slurm.conf;  " if request.provider == "slurm" else ""
        screen.note(f"next:  {first}bench run SCENARIO --site {place}/site.yaml")
    else:
        screen.note(f"next:  {again} --apply")
