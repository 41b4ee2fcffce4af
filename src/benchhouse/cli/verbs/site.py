"""Site profiles, which describe a machine or cluster: list, show, check, render."""

from pathlib import Path
from typing import Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import MemoryType, group

command = group(
    __doc__,
    "bench site list",
    "bench site show meluxina",
    "bench site check --write site.yaml   examine this machine, and keep the answers as the workspace's profile",
    "bench site render --namespace team   what an admin of Kubernetes has to make",
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
    "Examine this machine: Slurm, Kubernetes, modules, containers, folders, quotas, clocks.",
    "bench site check",
    "bench site check --write site.yaml   keep the answers as the workspace's profile",
)
@click.option("--network", is_flag=True, help="Also check whether PyPI and Docker Hub can be reached (2 s each).")
@click.option("--job", is_flag=True, help="Ask a compute node or a pod too, by a short job.")
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


@command.verb(
    "Print Kubernetes manifests for an admin: namespace, account with the least rights, quota, limits, volume. "
    "Nothing is sent to a cluster.",
    "bench site render --namespace team   to be piped into kubectl apply -f -",
    "bench site render --namespace team --cpus 64 --memory 256G --gpus 8 --size 500G",
    "bench site render --namespace team --user ann@example.com --no-egress",
)
@click.option("--namespace", metavar="NAME", help="Namespace; by default the site profile's.")
@click.option("--service-account", metavar="NAME", help="ServiceAccount to start runs with (bench).")
@click.option("--user", "users", metavar="NAME", multiple=True, help="User of the cluster with the same rights.")
@click.option("--claim", metavar="NAME", help="PersistentVolumeClaim; by default the site profile's, else bench.")
@click.option("--size", type=MemoryType(), help="Size of the volume (100G).")
@click.option("--storage-class", metavar="NAME", help="Storage class of the volume; by default the cluster's.")
@click.option("--cpus", type=int, help="Cores of all pods together; by default no quota.")
@click.option("--memory", type=MemoryType(), help="Memory of all pods together; by default no quota.")
@click.option("--gpus", type=int, help="GPUs of all pods together; by default no quota.")
@click.option("--nodes", is_flag=True, help="Also let the account see nodes: labels of nodes become evidence.")
@click.option("--servers", is_flag=True, help="Also let the account start servers from images of their own.")
@click.option("--ray", is_flag=True, help="Also let the account hand whole runs to KubeRay.")
@click.option("--schedules", is_flag=True, help="Also let the account keep schedules as CronJobs.")
@click.option("--endpoints", is_flag=True, help="Also let the account look up servers that are already there.")
@click.option("--no-egress", is_flag=True, help="Keep pods from reaching anything outside of the namespace.")
def render(workspace: Workspace, no_egress: bool, as_json: bool, **request: Any) -> None:
    from benchhouse.api.sites import manifest_text

    manifests = workspace.sites.manifests(**request, egress=False if no_egress else None)
    if as_json:
        screen.as_json({"apiVersion": "v1", "kind": "List", "items": manifests})
        return
    click.echo(manifest_text(manifests), nl=False)
    screen.note("next:  kubectl apply -f FILE, as an admin")
