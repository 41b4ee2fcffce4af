"""Answer an agent on stdin and stdout (MCP)."""

from typing import Any

import click

from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.roles import ROLES


@commands.verb(
    f"{__doc__}\n\nAn agent starts this itself, by what its configuration names. It speaks the Model Context Protocol: "
    "tools such as plan, run, compare and trace, and reports and evidence as resources. By default it only reads; "
    "`--allow run` lets it start runs, each within `--budget`.",
    "bench mcp   reads only",
    "bench mcp --allow run --budget trials=100 --budget wall=1h",
    json=False,
)
@click.option("--allow", type=click.Choice(ROLES), default="read", show_default=True, help="What the agent may do.")
@commands.budget_option
@commands.query_limit_option
def command(workspace: Workspace, /, allow: Any, budgets: tuple[str, ...], query_limits: tuple[str, ...]) -> int:
    try:
        from benchhouse.serve.mcp import serve_stdio
    except ModuleNotFoundError as error:
        raise BenchError(f"{error.name} is not installed", "pip install 'benchhouse[mcp]'") from error
    serve_stdio(workspace, allow, commands.budget_of(budgets), commands.query_limits_of(query_limits))
    return Exit.GOOD
