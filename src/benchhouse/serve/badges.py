"""`/badge/CASE/METRIC.svg`: a value for a README.

The answer is always an image with status 200, gray if there is no value, because README pages drop images of any other
status. `/api/badge` answers with a status that shows whether there is a value.
"""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchhouse.api.workspace import Workspace
from benchhouse.report.badge import badge
from benchhouse.schema.errors import BenchError
from benchhouse.serve.verb_requests import tagged

_FRESH_S = 60


def route(workspace: Workspace, *, public: bool) -> Route:
    """Return the route of badges. If `public`, other sites may show badges and shared caches may store them."""

    async def endpoint(request: Request) -> Response:
        drawing = await run_in_threadpool(_draw, workspace, request)
        keep = "public" if public else "private"
        response = tagged(request, drawing.encode(), "image/svg+xml", f"{keep}, max-age={_FRESH_S}")
        if public:
            response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        return response

    return Route("/badge/{case:path}/{metric}.svg", endpoint)


def _draw(workspace: Workspace, request: Request) -> str:
    case, metric = request.path_params["case"], request.path_params["metric"]
    try:
        return workspace.badge(case, metric, request.query_params.get("stat") or None).svg()
    except BenchError:
        return badge(metric, "no number", "unknown", f"{metric}: no valid number")
