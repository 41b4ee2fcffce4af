"""A run's progress as Server-Sent Events. All listeners of a run share one watcher, which ends with the last of
them."""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from benchhouse.api.rows import plain
from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import finite
from benchhouse.serve.verb_requests import hide_places, of_error

_LOOK_S = 0.5  # between two checks of the ledger's size and time
_AGAIN_S = 5.0  # after this time the state is read even if the ledger is unchanged: trials start without a line in it
_BEAT_S = 15.0  # after this time without an event, a comment keeps the connection alive
_UNDER_WAY = ("running", "waiting", "to be collected")


class RunWatcher:
    """A task that watches one run and notifies all listeners when its state changes."""

    def __init__(self, workspace: Workspace, run_id: str) -> None:
        self._workspace, self._run = workspace, workspace[run_id]
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.listeners = 0
        self.id = self.state = self.trouble = ""
        """The digest of the state, the state as JSON, and the error if it can no longer be read."""
        self.over = False

    async def look(self) -> None:
        """Read the state, and notify the listeners if it changed."""
        text, over, trouble = await run_in_threadpool(self._read)
        name = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        if (name, over, trouble) != (self.id, self.over, self.trouble):
            async with self._changed:
                self.id, self.state, self.over, self.trouble = name, text, over, trouble
                self._changed.notify_all()

    def _read(self) -> tuple[str, bool, str]:
        try:
            status = self._run.status()
        except BenchError as error:
            return self.state, True, bytes(of_error(error, self._workspace).body).decode()
        text = hide_places(json.dumps(finite(plain(status)), ensure_ascii=False), self._workspace)
        return text, status.state not in _UNDER_WAY, ""

    async def listen(self, last: str) -> AsyncIterator[str]:
        """Yield events until the run has ended, without the state that `last` names, which the client has."""
        self.listeners += 1
        self._task = self._task or asyncio.ensure_future(self._watch())
        try:
            while True:
                name, state, over, trouble = self.id, self.state, self.over, self.trouble
                if trouble:
                    yield f"event: problem\ndata: {trouble}\n\n"
                    return
                if name != last:
                    yield f"event: status\nid: {name}\ndata: {state}\n\n"
                    last = name
                if over:
                    yield f"event: end\nid: {name}\ndata: {{}}\n\n"
                    return
                async with self._changed:
                    quiet = self._changed.wait_for(lambda: (self.id, self.over) != (name, over))  # noqa: B023
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(quiet, _BEAT_S)
                        continue
                yield ": quiet\n\n"
        finally:
            self.listeners -= 1
            if not self.listeners and self._task:
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        seen, read = self._stamp(), time.monotonic()
        while not self.over:
            await asyncio.sleep(_LOOK_S)
            stamp = self._stamp()
            if stamp != seen or time.monotonic() - read > _AGAIN_S:
                await self.look()
                seen, read = stamp, time.monotonic()

    def _stamp(self) -> tuple[float, int]:
        try:
            found = self._workspace.folder.run(self._run.id).events.stat()
        except OSError:
            return 0.0, 0
        return found.st_mtime, found.st_size


class Events:
    """The endpoint: `/api/runs/{run}/events`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._watchers: dict[str, RunWatcher] = {}

    async def listen(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        try:
            run_id = await run_in_threadpool(lambda: self._workspace[request.path_params["run"]].id)
        except BenchError as error:
            return of_error(error, self._workspace)
        watcher = self._watchers.get(run_id)
        if watcher is None or not watcher.listeners:
            self._watchers = {name: item for name, item in self._watchers.items() if item.listeners}
            watcher = self._watchers[run_id] = RunWatcher(self._workspace, run_id)
            await watcher.look()
        if watcher.over and not watcher.trouble and last == watcher.id:
            return Response(status_code=204)  # ends the browser's retries
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(watcher.listen(last), media_type="text/event-stream", headers=headers)
