"""Site profiles, what a cluster is like: list, show, check."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.cli.examples import examples

_EXAMPLES = """\b
Examples:
  bench site list
  bench site show meluxina
  bench site check --write site.yaml       ask this machine, and keep the answers as the workspace's profile
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
    from benchhouse.sites import check

    rows = check.list_sites(options.workspace(ctx).folder)
    if as_json:
        screen.as_json(rows)
        return
    table = [
        (row["site"], "*" if row["used"] else "", row["executor"], row["to_confirm"] or "", row["description"])
        for row in rows
    ]
    screen.table(("site", "used", "executor", "to confirm", "description"), table, right=("to confirm",))
    screen.note("next:  bench site show SITE, bench plan SCENARIO --site SITE")


@command.command(
    "show",
    help="Print a profile as it is read; without a name, the one that counts here."
    + examples("bench site show meluxina"),
)
@click.argument("site", required=False)
@options.json_option
@click.pass_context
def show_(ctx: click.Context, site: str | None, as_json: bool) -> None:
    from benchhouse.sites import check

    found = check.show_site(options.workspace(ctx).folder, site)
    if as_json:
        screen.as_json(found.model_dump(mode="json"))
        return
    click.echo(check.profile_text(found), nl=False)
    if found.to_confirm:
        screen.note(f"{screen.count(len(found.to_confirm), 'value')} to confirm on the site:  bench site check")


@command.command(
    help="Ask this machine what it is: Slurm, modules, containers, folders, quotas, clocks."
    + examples("bench site check", "bench site check --write site.yaml   keep the answers as the workspace's profile")
)
@click.option("--network", is_flag=True, help="Also ask whether PyPI and Docker Hub answer (2 s each).")
@click.option(
    "--write",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a profile of what was found.",
)
@options.json_option
@click.pass_context
def check(ctx: click.Context, network: bool, write: Path | None, as_json: bool) -> None:
    from benchhouse.sites import check

    checked = check.check_site(options.workspace(ctx).folder, network)
    if write:
        check.write_profile(checked.profile, write)
    if as_json:
        screen.as_json(checked.model_dump(mode="json"))
        return
    screen.table(
        ("what", "state", "found", "note"),
        [(item.what, item.state, item.value, item.note) for item in checked.findings],
        whole=("what", "state"),
    )
    if not write:
        screen.note("next:  bench site check --write site.yaml")
        return
    screen.note(f"wrote {write}; jobs use it where it is site.yaml of the workspace, or by  --site {write}")
    for line in checked.profile.to_confirm:
        screen.note(f"to confirm: {line}")
