"""What agents get over the Model Context Protocol: the verbs as tools, and reports and evidence as resources.

This module is imported at the first request of an agent, because the import of the protocol's library takes more than a
second.
"""

import copy
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.schema.query import QueryLimits
from benchhouse.schema.resources import Budget
from benchhouse.schema.roles import Role
from benchhouse.schema.version import __version__
from benchhouse.serve.access import Caller
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.limits import AllTurns
from benchhouse.serve.log import log_to_stderr
from benchhouse.serve.mcp_resources import McpResources
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.tool_text import text_of
from benchhouse.serve.tools import TOOLS, Tool
from benchhouse.serve.verb_requests import words_of

LOG = logging.getLogger("benchhouse.serve")
Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
_INSTRUCTIONS = (
    "Benchmarks whose every number walks back to raw bytes. Numbers come with their unit, interval, n and a reference: "
    "quote none without these, and prove it with the tool `trace`. What a comparison calls no difference is none. "
    "Before `run`, `plan` says what a scenario takes; then `status` until the run is finished, then `points`."
)
_LARGEST_ANSWER = 1 << 20  # for a query; agents get less than this, and larger results are not worth the time
_DESTRUCTIVE = ("stop",)


class AgentServer:
    """The tools and resources of one workspace; `caller_of` returns the caller of a request."""

    def __init__(
        self, workspace: Workspace, writes: ServerWrites, turns: AllTurns, caller_of: Callable[[Context], Caller]
    ) -> None:
        self._workspace, self._writes, self._turns, self._caller_of = copy.copy(workspace), writes, turns, caller_of
        limits = workspace.query_limits or QueryLimits()
        self._workspace.query_limits = limits.model_copy(update={"answer": min(limits.answer, _LARGEST_ANSWER)})
        self._resources = McpResources(workspace)

    def server(self) -> "Server[Any]":
        """Return the server object of the protocol's library."""
        return Server(
            "benchhouse",
            version=__version__,
            instructions=f"{_INSTRUCTIONS} {_budget_words(self._writes.budget)}",
            get_tool_input_schema=lambda name: TOOLS[name].asks if name in TOOLS else None,
            on_list_tools=_safe(self._list_tools),
            on_call_tool=_safe(self._call_tool),
            on_list_resources=_safe(self._list_resources),
            on_list_resource_templates=_safe(self._list_templates),
            on_read_resource=_safe(self._read_resource),
        )

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        caller = self._caller_of(context)
        tools = [tool for tool in TOOLS.values() if caller.may(tool.verb.scope)]
        return types.ListToolsResult(tools=await run_in_threadpool(lambda: list(map(self._described, tools))))

    def _described(self, tool: Tool) -> types.Tool:
        verb = tool.verb
        limit = f" {_budget_words(self._writes.budget)}" if tool.name in ("run", "resume") else ""
        return types.Tool(
            name=tool.name,
            description=f"{verb.summary}{limit}",
            input_schema=tool.asks,
            output_schema=tool.answers,
            annotations=types.ToolAnnotations(
                read_only_hint=not verb.writes,
                destructive_hint=tool.name in _DESTRUCTIVE,
                idempotent_hint=not verb.writes,
                open_world_hint=False,
            ),
        )

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool, caller = TOOLS.get(params.name), self._caller_of(context)
        if tool is None:
            there = ", ".join(name for name, tool in TOOLS.items() if caller.may(tool.verb.scope))
            return _refused(f"there is no tool {params.name[:80]!r}", f"there are {there}", {})
        try:
            turns = self._turns.of(tool.verb.path)
            answer, left_out = await turns.run(
                caller.name, tool.call, self._workspace, self._writes, caller, params.arguments or {}
            )
        except BenchError as error:
            return _refused(*words_of(error, self._workspace))
        text = text_of(tool.name, answer, left_out)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=answer)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await run_in_threadpool(self._resources.listed))

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=self._resources.templates())

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            turns = self._turns.of("resources")
            content = await turns.run(self._caller_of(context).name, self._resources.read, str(params.uri))
        except BenchError as error:
            message, hint, _ = words_of(error, self._workspace)
            raise MCPError(types.INVALID_PARAMS, f"{message}; {hint}" if hint else message) from error
        return types.ReadResourceResult(contents=[content])


def _refused(message: str, hint: str, more: dict[str, Any]) -> types.CallToolResult:
    """Return an error with the messages of the command line, which the agent sees."""
    text = f"{message}\n{hint}" if hint else message
    content = {"title": message, "detail": hint} | more
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=content, is_error=True
    )


def _safe(handler: Callable[[Context, Any], Awaitable[T]]) -> Callable[[Context, Any], Awaitable[T]]:
    """Log unexpected errors and hide them from the agent: the library would send their messages, with paths in them."""

    async def answer(context: Context, params: Any) -> T:
        try:
            return await handler(context, params)
        except MCPError:
            raise
        except Exception as error:
            LOG.exception("%s failed", context.method)
            raise MCPError(types.INTERNAL_ERROR, "the server failed; the cause is in its log") from error

    return answer


def _budget_words(budget: Budget | None) -> str:
    if budget is None:
        return "A run may use what its scenario says."
    limits = ", ".join(f"{name} {value:g}" for name, value in budget.model_dump(exclude_none=True).items())
    return f"Each run may use at most {limits} (times in seconds); more needs somebody with the role approve."


async def answer_over_http(
    workspace: Workspace, writes: ServerWrites, turns: AllTurns, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer one request of the streamable HTTP transport, without a session: each request is authenticated."""
    agents = AgentServer(workspace, writes, turns, lambda context: context.request.scope["caller"])  # type: ignore[union-attr]
    manager = StreamableHTTPSessionManager(agents.server(), json_response=True, stateless=True)
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def serve_stdio(workspace: Workspace, allow: Role, budget: Budget | None, queries: QueryLimits) -> None:
    """Answer on stdin and stdout until stdin ends; the caller is the account that started this process."""
    log_to_stderr()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # otherwise Ctrl-C waits for the next line; writes survive a kill
    workspace.query_limits = queries
    writes = ServerWrites(workspace, ServerDatabase(workspace.folder.server_state), budget)
    caller = Caller("local", allow, "stdio")
    server = AgentServer(workspace, writes, AllTurns(queries), lambda context: caller).server()

    async def answer() -> None:
        async with stdio_server() as (given, told):
            await server.run(given, told, server.create_initialization_options())

    anyio.run(answer)
