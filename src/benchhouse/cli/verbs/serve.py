"""Serve pages, an HTTP API, and MCP on this workspace."""

from typing import Any

import click

from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.roles import ROLES


@commands.verb(
    f"{__doc__}\n\nYour own account on this machine reads without a login; `--allow run` lets it start runs too. Other "
    "accounts and other machines need a token (bench token make), or a proxy that names the user (--trusted-proxy). "
    "Ends with Ctrl-C; runs that were started continue.",
    "bench serve",
    "bench serve --port 0 --allow run   any free port; start and stop runs in the browser",
    "bench serve --host 0.0.0.0 --name bench.example.org   for those who have a token",
    "bench serve --follow   runs of the team's PostgreSQL too, their evidence from its S3",
    "bench serve --trusted-proxy 10.0.0.5 --grant @perf=run --root-path /bench",
    json=False,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, show_default=True, help="Port to listen on.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Host name by which it is reached; repeatable.")
@click.option("--root-path", default="", metavar="PATH", help="Sub-path under which a proxy shows it: /bench.")
@click.option(
    "--allow",
    type=click.Choice(ROLES),
    default="read",
    show_default=True,
    help="Role of clients on this machine that need no login.",
)
@click.option(
    "--login/--no-login",
    default=None,
    help="On this machine: all clients need a token, or none do.  [default: only other accounts need one]",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="CIDR",
    help="Address of a proxy that says who asks; repeatable.",
)
@click.option(
    "--follow",
    "follow_s",
    type=commands.DURATION,
    is_flag=False,
    flag_value="30s",
    metavar="[INTERVAL]",
    help="Show what is in the team's store of workspace.yaml too, looking for new runs that often; by default 30s.",
)
@click.option("--user-header", default="X-Forwarded-User", show_default=True, help="In which a proxy names the user.")
@click.option("--groups-header", default="X-Forwarded-Groups", show_default=True, help="In which it names the groups.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="WHO=ROLE",
    help="Role of a proxy's user, of @GROUP, or of * (by default read); repeatable.",
)
@click.option("--public-badges", is_flag=True, help="Show badges to anybody, also on pages of other sites.")
@commands.budget_option
@commands.query_limit_option
@click.option("--max-body", type=commands.MemoryType(), default="2M", show_default=True, help="Size of a request.")
@click.option(
    "--max-time",
    "max_time_s",
    type=commands.DURATION,
    default="60s",
    show_default=True,
    help="Time until an answer begins.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(16),
    default=512,
    show_default=True,
    help="Open connections: a quarter for each client, an eighth for each address without a login.",
)
@click.option(
    "--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Requests a second of one caller."
)
def command(workspace: Workspace, /, **options: Any) -> int:
    try:
        from benchhouse.serve import settings
        from benchhouse.serve.server import serve, warnings
    except ModuleNotFoundError as error:
        raise BenchError(f"{error.name} is not installed", "pip install 'benchhouse[serve]'") from error
    options["proxies"] = tuple(map(settings.network, options["proxies"]))
    options["grants"] = settings.grants(commands.pairs(options["grants"], "--grant", "WHO=ROLE"))
    options["budget"] = commands.budget_of(options.pop("budgets"))
    options["query_limits"] = commands.query_limits_of(options["query_limits"])
    try:
        options["root_path"] = settings.sub_path(options["root_path"])
    except ValueError as error:
        raise BenchError(f"--root-path {error}") from error
    chosen = settings.Settings(**options)
    for warning in warnings(chosen):
        click.echo(f"warning: {warning}", err=True)
    serve(workspace, chosen, lambda address: click.echo(f"open  {address}   (Ctrl-C ends it)"))
    return Exit.GOOD
