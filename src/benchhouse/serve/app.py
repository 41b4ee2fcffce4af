"""The application: the API of the table of verbs, the pages, and what both share."""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from benchhouse.api.workspace import Workspace
from benchhouse.serve import (
    badges,
    evaluations,
    feed,
    metrics,
    openapi,
    reading_automation,
    reading_catalog,
    reading_verbs,
    writing_verbs,
)
from benchhouse.serve.access import Authenticator
from benchhouse.serve.connections import Connections
from benchhouse.serve.events import Events
from benchhouse.serve.guard import Guard
from benchhouse.serve.idempotent_writes import ServerWrites
from benchhouse.serve.limits import AllTurns
from benchhouse.serve.pages import (
    actions,
    builder,
    catalog,
    claims,
    compare,
    evidence,
    front,
    history,
    login,
    logs,
    run,
    runs,
    servers,
    trace,
    views,
)
from benchhouse.serve.pages.shell import not_found, page, server_error
from benchhouse.serve.settings import Settings
from benchhouse.serve.state import ServerDatabase
from benchhouse.serve.verb_requests import VerbEndpoint, problem
from benchhouse.serve.verbs import VERBS, Verb
from benchhouse.serve.webhooks import Webhooks

DECLARED = (
    reading_verbs,
    reading_automation,
    reading_catalog,
    evaluations,
    writing_verbs,
)  # the modules that fill VERBS
_THREADS = 12
PAGES = (
    ("/", front.front),
    ("/runs", runs.all_runs),
    ("/runs/{run}", run.one_run),
    ("/runs/{run}/live", run.live),
    ("/runs/{run}/logs", logs.logs),
    ("/runs/{run}/logs/live", logs.live),
    ("/runs/{run}/evidence", evidence.all_trials),
    ("/runs/{run}/evidence/{trial}", evidence.one_trial),
    ("/runs/{run}/evidence/{trial}/{file:path}", evidence.one_file),
    ("/trace", trace.trace),
    ("/catalogue", catalog.catalogue),
    ("/catalogue/{name:path}", catalog.experiment),
    ("/claims", claims.claims),
    ("/claims/documents", claims.documents),
    ("/claims/{claim}", claims.one_claim),
    ("/compare", compare.compare),
    ("/contracts", claims.contracts),
    ("/contracts/{contract}", claims.one_contract),
    ("/history", history.cases),
    ("/history/{case:path}", history.one_case),
    ("/leaderboards", catalog.leaderboards),
    ("/leaderboards/{benchmark:path}", catalog.leaderboard),
    ("/new", builder.new),
    ("/runs/{run}/contract", claims.run_contract),
    ("/servers", servers.servers),
    ("/servers/{server}", servers.one_server),
    ("/views", views.audience),
    ("/views/release", views.release),
)


def make_app(workspace: Workspace, settings: Settings, connections: Connections) -> ASGIApp:
    state = ServerDatabase(workspace.folder.server_state)
    access = Authenticator(workspace, settings, state)
    writes = ServerWrites(workspace, state, settings.budget)
    paths: dict[str, dict[str, Verb]] = {}
    for verb in VERBS.values():
        paths.setdefault(verb.path, {})[verb.method] = verb
    turns = AllTurns(settings.query_limits)
    api = [
        Route(f"/api{path}", VerbEndpoint(verbs, workspace, writes, turns.of(path))) for path, verbs in paths.items()
    ]
    counted = metrics.Counted()
    pages = [Route(path, page(workspace, make, turns.of(path))) for path, make in PAGES]
    pages.append(Route("/new/scenario.yaml", builder.download(workspace)))
    app = Starlette(
        routes=[
            Route("/api/openapi.json", _openapi),
            Route("/api/runs/{run}/events", Events(workspace).listen),
            *api,
            Route("/api/{rest:path}", _unknown),
            Route("/mcp", AgentEndpoint(workspace, writes, turns), methods=["POST"]),
            Route("/assets/report.js", run.report_script),
            Mount("/assets", StaticFiles(packages=[("benchhouse.report", "assets"), ("benchhouse.serve", "assets")])),
            *login.routes(access),
            actions.route(workspace, writes),
            feed.route(workspace, state),
            badges.route(workspace, public=settings.public_badges),
            metrics.route(workspace, counted),
            Webhooks(workspace).route(),
            *pages,
        ],
        lifespan=_few_threads,
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=3)],
        exception_handlers={404: _no_page, 500: _failed},
    )
    app.state.follows = settings.follow_s is not None
    return counted.before(Guard(app, access, connections))


@asynccontextmanager
async def _few_threads(app: Starlette) -> AsyncIterator[None]:
    """Limit the threads: concurrent answers hold memory, and on a few cores more of them do not finish sooner."""
    current_default_thread_limiter().total_tokens = _THREADS
    yield


class AgentEndpoint:
    """The endpoint of agents over streamable HTTP; the protocol's library is imported at their first request."""

    def __init__(self, workspace: Workspace, writes: ServerWrites, turns: AllTurns) -> None:
        self._workspace, self._writes, self._turns = workspace, writes, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            module = await run_in_threadpool(importlib.import_module, "benchhouse.serve.mcp")
        except ModuleNotFoundError as error:
            hint = "where the server runs: pip install 'benchhouse[mcp]'"
            await problem(501, f"{error.name} is not installed", hint)(scope, receive, send)
            return
        await module.answer_over_http(self._workspace, self._writes, self._turns, scope, receive, send)


def _openapi(request: Request) -> Response:
    return JSONResponse(openapi.document())


def _no_page(request: Request, error: Exception) -> Response:
    return not_found(request)


def _failed(request: Request, error: Exception) -> Response:
    if request.url.path.removeprefix(request.scope.get("root_path", "")).startswith(("/api/", "/mcp")):
        return problem(500, "the server failed", "the cause is in its log")
    return server_error(request)


def _unknown(request: Request) -> Response:
    return problem(404, f"there is no {request.url.path}", "GET /api/openapi.json names what there is")
