"""Limits per caller: requests per second, bytes and time of a body, and answers that are computed at once."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Receive, Scope

from benchhouse.schema.errors import BusyError
from benchhouse.schema.query import QueryLimits
from benchhouse.warehouse.query_deadline import refuse_unwanted

BODY_S = 30.0
_MOST_KNOWN = 10_000
_BURST_S = 4.0
_AT_ONCE = 4
_OF_ONE_CLIENT = 2
QUERIES = "/query"
"""The path of the verbs that answer SQL."""
Answer = TypeVar("Answer")


class Rates:
    """A token bucket per caller: it fills at `rate` per second, for `_BURST_S` at most, and a request takes one
    token."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate, self._burst = rate, burst if burst is not None else max(1.0, rate * _BURST_S)
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, who: str) -> float:
        """Return 0 if the request may continue, and otherwise the seconds until the next request is accepted."""
        now = time.monotonic()
        left, then = self._left.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        if len(self._left) >= _MOST_KNOWN:
            del self._left[next(iter(self._left))]  # the caller whose last request is the oldest
        self._left[who] = (left - 1.0 if left >= 1.0 else left, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate


class Turns:
    """How many answers of one kind are computed at once, including those whose client has disconnected. One client has
    at most one turn fewer than there are, so that it cannot block the requests of other clients."""

    def __init__(self, at_once: int = _AT_ONCE, wait_s: float | None = None, clients: "ByClient | None" = None) -> None:
        self._free, self._each = asyncio.Semaphore(at_once), ByClient(max(1, at_once - 1))
        self._clients, self._at_once, self._wait_s = clients, at_once, wait_s

    async def run(self, client: str, function: Callable[..., Answer], *args: Any) -> Answer:
        """Return the result of the function, which runs in a thread. Raise BenchError if the client has disconnected
        when its turn comes, and BusyError if that takes longer than `wait_s`."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._wait_s):
                    await held.enter_async_context(self._each.of(client))
                    if self._clients:
                        await held.enter_async_context(self._clients.of(client))
                    await held.enter_async_context(self._free)
            except TimeoutError:
                raise BusyError(
                    f"{self._at_once} such requests are answered at once ({self._each.most} of one client), and none "
                    f"ended within {self._wait_s:g} s",
                    "try again later; for queries the owner's limit is --query-limit at_once",
                ) from None
            refuse_unwanted()
            return await run_in_threadpool(function, *args)


class ByClient:
    """A number of turns per client."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, client: str) -> asyncio.Semaphore:
        return self._turns.setdefault(client, asyncio.Semaphore(self.most))


class AllTurns:
    """The turns of each kind of request, over HTTP or from an agent.

    A client has two turns over all kinds, because more would take the interpreter from other clients. Queries are not
    counted there: they run in their own processes, of which there are as many as queries have turns.
    """

    def __init__(self, queries: QueryLimits) -> None:
        self._by_kind = {QUERIES: Turns(queries.at_once, queries.wait)}
        self._clients = ByClient(_OF_ONE_CLIENT)

    def of(self, kind: str) -> Turns:
        if kind not in self._by_kind:
            self._by_kind[kind] = Turns(clients=self._clients)
        return self._by_kind[kind]


class TooLarge(Exception):  # noqa: N818 - an answer
    """The body of a request is larger than the limit."""


class TooManyAtOnce(Exception):  # noqa: N818 - an answer
    """The bodies of a client's unanswered requests are together larger than the limit."""


class BodyRoom:
    """The memory that the bodies of each client's unanswered requests may take together."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, Counter[str]()

    @contextlib.contextmanager
    def reserve(self, client: str, size: int) -> Iterator[None]:
        """Count the body of a request until it is answered. Raise TooManyAtOnce if the client's bodies are too large
        together."""
        if self._taken[client] + size > self._most:
            raise TooManyAtOnce
        self._taken[client] += size
        try:
            yield
        finally:
            self._taken[client] -= size
            if not self._taken[client]:
                del self._taken[client]


def body_size(scope: Scope, most: int) -> int:
    """Return the size that a request states for its body, or else the limit. Raise TooLarge above the limit."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    if not length.isdigit():
        return most
    if int(length) > most:
        raise TooLarge
    return int(length)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Return the whole body; None if the client disconnected before its end. Raise TooLarge or TimeoutError."""
    parts, size = [], 0
    async with asyncio.timeout(BODY_S):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            size += len(message.get("body", b""))
            if size > most:
                raise TooLarge
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that repeats a body that was already read, and then continues with `receive`."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again
