"""`/metrics`: the hot metrics of recent runs and the load of this server, for Prometheus to scrape."""

import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchhouse.api.hot_metrics import HotMetrics
from benchhouse.api.workspace import Workspace
from benchhouse.evidence.textfile import TextfileSample

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OF = "benchhouse_serve"


class Counted:
    """Counts requests, and the seconds until their answers begin.

    The duration of answers is not counted: an event stream lasts for hours and would dominate the sum.
    """

    def __init__(self) -> None:
        self._requests, self._errors, self._seconds = 0, 0, 0.0

    def before(self, app: ASGIApp) -> ASGIApp:
        """Return the application with counted requests."""

        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            begun = time.perf_counter()

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._requests += 1
                    self._errors += message["status"] >= 500
                    self._seconds += time.perf_counter() - begun
                await send(message)

            await app(scope, receive, sending)

        return counting

    def samples(self) -> list[TextfileSample]:
        counted = (
            ("requests_total", float(self._requests), "Requests that were answered."),
            ("errors_total", float(self._errors), "Requests that were answered with a status of 500 or above."),
            ("request_seconds_total", self._seconds, "Seconds until the answers of these requests began."),
        )
        return [TextfileSample(f"{_OF}_{name}", value, (), text, "counter") for name, value, text in counted]


def route(workspace: Workspace, counted: Counted) -> Route:
    hot = HotMetrics(workspace.folder)

    async def endpoint(request: Request) -> Response:
        page = await run_in_threadpool(hot.page, counted.samples())
        return Response(page.encode("utf-8", "replace"), headers={"Cache-Control": "no-store"}, media_type=TEXT)

    return Route("/metrics", endpoint)
