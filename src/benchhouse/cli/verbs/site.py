"""Site profiles, which describe a machine or cluster: list, show, check."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples

_EXAMPLES = """\b
Examples:
  bench site list
  bench site show meluxina
  bench site check --write site.yaml       examine this machine, and keep the answers as the workspace's profile
"""


@click.group(help=f"{__doc__}\n\n{_EXAMPLES}")
def command() -> None:
    pass


@command.command(
    "list", help="List the profiles that are shipped, and the workspace's own." + examples("bench site list")
)
@options.json_option
@click.pass_context
def list_(ctx: click.Context, as_json: bool) -> None:
    profiles = options.workspace(ctx).sites.profiles()
    if as_json:
        screen.as_json(screen.plain(profiles))
        return
    table = [
        (item.site, "*" if item.used else "", item.executor, item.to_confirm or "", item.description)
        for item in profiles
    ]
    screen.table(("site", "used", "executor", "to confirm", "description"), table, right=("to confirm",))
    screen.note("next:  bench site show SITE, bench plan SCENARIO --site SITE")


@command.command(
    "show",
    help="Print a profile; without a name, the one in use here." + examples("bench site show meluxina"),
)
@click.argument("site", required=False)
@options.json_option
@click.pass_context
def show_(ctx: click.Context, site: str | None, as_json: bool) -> None:
    from benchhouse.api.sites import profile_text

    profile = options.workspace(ctx).sites.profile(site)
    if as_json:
        screen.as_json(screen.plain(profile))
        return
    click.echo(profile_text(profile), nl=False)
    if profile.to_confirm:
        screen.note(f"{screen.count(len(profile.to_confirm), 'value')} to confirm on the site:  bench site check")


@command.command(
    help="Examine this machine: Slurm, modules, containers, folders, quotas, clocks."
    + examples("bench site check", "bench site check --write site.yaml   keep the answers as the workspace's profile")
)
@click.option("--network", is_flag=True, help="Also check whether PyPI and Docker Hub can be reached (2 s each).")
@click.option(
    "--write",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the findings as a profile.",
)
@options.json_option
@click.pass_context
def check(ctx: click.Context, network: bool, write: Path | None, as_json: bool) -> None:
    checked = options.workspace(ctx).sites.check(network=network, write=write)
    if as_json:
        screen.as_json(screen.plain(checked))
        return
    screen.table(
        ("what", "state", "found", "note"),
        [(item.what, item.state, item.value, item.note) for item in checked.findings],
        whole=("what", "state"),
    )
    if not write:
        screen.note("next:  bench site check --write site.yaml")
        return
    screen.note(f"wrote {write}; it is used as site.yaml of the workspace, or with  --site {write}")
    for line in checked.profile.to_confirm:
        screen.note(f"to confirm: {line}")
