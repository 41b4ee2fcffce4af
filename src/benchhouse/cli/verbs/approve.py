"""Approve a plan that needs more than its submitter may start."""

from pathlib import Path

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.cli.verbs.approvals import facts_of, names


@commands.verb(
    "Approve the plan DIGEST, the name of a request or the beginning of its plan's digest: sign with an SSH key of "
    "yours that this plan may run once, on this executor and site, within this budget.\n\n"
    "Whoever approves has the role approve in trusted.yaml, and has not asked for it. A plan that is changed by one "
    "byte needs another approval.",
    "bench approve 4f1c2a90",
    "bench approve 4f1c2a90aa01b2c3-2 --expires 2d --reason 'for the release'",
    "bench approve 4f1c2a90 --key ~/.ssh/work.pub   with the key that your agent holds",
    name="approve",
)
@click.argument("digest", shell_complete=commands.completing(names))
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Private key, or the .pub of one that your agent holds; default: one of ~/.ssh.")  # fmt: skip
@click.option("--expires", "for_s", type=commands.DURATION, default="7d", show_default=True, help="Its time to live.")
@click.option("--by", default="", metavar="NAME", help="Who approves; default: whose key it is.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people who read it later.")
def command(
    workspace: Workspace, /, digest: str, key: Path | None, for_s: float, by: str, reason: str, as_json: bool
) -> None:
    standing = workspace.approvals.approve(digest, by=by, key=key, for_s=for_s, reason=reason)
    if as_json:
        screen.as_json(standing)
        return
    facts_of(standing)
    screen.note(f"now {standing.asked_by} gives the same command again, until {standing.expires[:16]} UTC")
    screen.note(f"take it back:  bench approvals revoke {standing.name}")
