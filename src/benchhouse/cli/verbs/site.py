"""Site profiles, which describe a machine or cluster: list, show, check."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import group

command = group(
    __doc__,
    "bench site list",
    "bench site show meluxina",
    "bench site check --write site.yaml   examine this machine, and keep the answers as the workspace's profile",
)


@command.verb("List the profiles that are shipped, and the workspace's own.", "bench site list")
def list_(workspace: Workspace, as_json: bool) -> None:
    profiles = workspace.sites.profiles()
    if as_json:
        screen.as_json(profiles)
        return
    table = [
        (item.site, "*" if item.used else "", item.executor, item.to_confirm or "", item.description)
        for item in profiles
    ]
    screen.table(("site", "used", "executor", "to confirm", "description"), table, right=("to confirm",))
    screen.note("next:  bench site show SITE, bench plan SCENARIO --site SITE")


@command.verb("Print a profile; without a name, the one in use here.", "bench site show meluxina")
@click.argument("site", required=False)
def show_(workspace: Workspace, site: str | None, as_json: bool) -> None:
    from benchhouse.api.sites import profile_text

    profile = workspace.sites.profile(site)
    if as_json:
        screen.as_json(profile)
        return
    click.echo(profile_text(profile), nl=False)
    if profile.to_confirm:
        screen.note(f"{screen.count(len(profile.to_confirm), 'value')} to confirm on the site:  bench site check")


@command.verb(
    "Examine this machine: Slurm, modules, containers, folders, quotas, clocks.",
    "bench site check",
    "bench site check --write site.yaml   keep the answers as the workspace's profile",
)
@click.option("--network", is_flag=True, help="Also check whether PyPI and Docker Hub can be reached (2 s each).")
@click.option("--job", is_flag=True, help="Look for Apptainer on a compute node, by a short job.")
@click.option("--write", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the findings as a profile.")  # fmt: skip
def check(workspace: Workspace, network: bool, job: bool, write: Path | None, as_json: bool) -> None:
    checked = workspace.sites.check(network=network, job=job, write=write)
    if as_json:
        screen.as_json(checked)
        return
    rows = [(item.what, item.state, item.value, item.note) for item in checked.findings]
    screen.table(("what", "state", "found", "note"), rows, whole=("what", "state"))
    if not write:
        screen.note("next:  bench site check --write site.yaml")
        return
    screen.note(f"wrote {write}; it is used as site.yaml of the workspace, or with  --site {write}")
    for line in checked.profile.to_confirm:
        screen.note(f"to confirm: {line}")
