"""POST /webhooks/github: signed deliveries are stored on disk before they are answered; an agent does the work."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchhouse.api.github import WebhookDoor
from benchhouse.api.workspace import Workspace
from benchhouse.automation.github.deliveries import Delivery, DeliveryRefused
from benchhouse.schema.errors import BenchError
from benchhouse.serve.verb_requests import problem

LOG = logging.getLogger("benchhouse.serve")
GITHUB = "/webhooks/github"


class Webhooks:
    """The endpoint of deliveries. Deliveries that arrive during a write are written together, with one sync."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._door: WebhookDoor | None = None
        self._thread = ThreadPoolExecutor(1, "webhooks")  # the only thread that uses the connection to the store
        self._waiting: list[tuple[Delivery, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None
        if workspace.folder.settings.is_file():
            self._thread.submit(self._open)  # so that no delivery waits for it; an error is reported to the first

    def _open(self) -> WebhookDoor:
        if self._door is None:
            self._door = self._workspace.github.door()
        return self._door

    def route(self) -> Route:
        return Route(GITHUB, self.github, methods=["POST"])

    async def github(self, request: Request) -> Response:
        body = await request.body()
        loop = asyncio.get_running_loop()
        try:
            door = await loop.run_in_executor(self._thread, self._open) if self._door is None else self._door
        except BenchError as error:
            LOG.warning("refused a webhook: %s", error)
            return problem(404, "no webhooks are taken here")
        try:
            delivery = door.read(request.headers, body)
            taken: asyncio.Future[bool] = loop.create_future()
            self._waiting.append((delivery, taken))
            if self._writing is None:
                self._writing = asyncio.create_task(self._write(door))
            new = await taken
        except DeliveryRefused as refusal:
            LOG.warning("refused a webhook: %s", refusal)
            return problem(refusal.status, str(refusal))
        except BenchError as error:
            LOG.warning("a webhook could not be kept: %s", error)
            return problem(503, "it could not be kept: deliver it again later")
        if not new:
            return problem(409, "this delivery was taken before")
        state = {"state": "queued"} if delivery.orders else {"state": "ignored", "why": delivery.why}
        return JSONResponse(state, 202)

    async def _write(self, door: WebhookDoor) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                new = await loop.run_in_executor(self._thread, door.take, [item[0] for item in batch])
                answers: list[bool | Exception] = list(new)
            except Exception as error:  # noqa: BLE001 - each waiting request gets it
                answers = [error] * len(batch)
            for (_, taken), answer in zip(batch, answers, strict=True):
                if taken.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    taken.set_exception(answer)
                else:
                    taken.set_result(answer)
        self._writing = None
