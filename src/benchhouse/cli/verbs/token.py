"""Tokens of `bench serve`: make, list and revoke them."""

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.roles import ROLES, Role

command = commands.group(
    f"{__doc__}\n\nread: look. run: also start and stop runs, which is to run programs as the server's user. approve: "
    "also accept baselines, mute alarms, publish claims. admin: also read the audit log.",
    "bench token make ada --scope run",
    "bench token make ci --scope read --expires 90d",
    "bench token list",
    "bench token revoke ada",
)


@command.verb(
    "Make a token for NAME and print it, this once; only its digest is kept.",
    "bench token make ada --scope run --expires 30d",
    "bench token make ci > token.txt   the token alone; notes go to stderr",
)
@click.argument("name")
@click.option("--scope", type=click.Choice(ROLES), default="read", show_default=True, help="What it allows.")
@click.option("--expires", "for_s", type=commands.DURATION, default="30d", show_default=True, help="Its time to live.")
def make(workspace: Workspace, name: str, scope: Role, for_s: float, as_json: bool) -> None:
    made = workspace.tokens.make(name, scope, for_s=for_s)
    if as_json:
        screen.as_json(made)
        return
    click.echo(made.secret)
    screen.note(f"{made.token.id}: {scope}, until {made.token.expires[:16]} UTC; it is not shown again")
    screen.note("use it:  curl -H 'Authorization: Bearer TOKEN' ...  or in a browser at /login")


@command.verb("All tokens, also those that count no more.", "bench token list")
def list_(workspace: Workspace, as_json: bool) -> None:
    tokens = workspace.tokens.list()
    if as_json:
        screen.as_json(tokens)
        return
    if not tokens:
        click.echo("there is no token in this workspace")
        screen.note("make one:  bench token make NAME --scope run")
        return
    rows = [(item.id, item.name, item.scope, item.state, item.made[:16], item.expires[:16]) for item in tokens]
    screen.table(("id", "name", "scope", "state", "made", "expires"), rows, whole=("id", "state"))


@command.verb(
    "Revoke TOKEN, an id, or a name: then all good ones of that name. A running server heeds it at once.",
    "bench token revoke 1f00c0de",
    "bench token revoke ada",
)
@click.argument(
    "token", shell_complete=commands.completing(lambda ws: {item.id: item.name for item in ws.tokens.list()})
)
def revoke(workspace: Workspace, token: str, as_json: bool) -> None:
    revoked = workspace.tokens.revoke(token)
    if as_json:
        screen.as_json(revoked)
        return
    for item in revoked:
        click.echo(f"revoked {item.id} of {item.name}")
