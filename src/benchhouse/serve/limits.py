"""How much is taken from one asker, requests a second, bytes and time to send them; and how much is done at once."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Receive, Scope

from benchhouse.warehouse.patience import refuse_unwanted

BODY_S = 30.0
_MOST_KNOWN = 10_000
_BURST_S = 4.0
_AT_ONCE = 4
Answer = TypeVar("Answer")


class Rates:
    """A bucket for each asker: it fills by `rate` a second, up to `_BURST_S` of them, and a request takes one."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self._rate, self._burst = rate, burst if burst is not None else max(1.0, rate * _BURST_S)
        self._left: dict[str, tuple[float, float]] = {}

    def wait_s(self, who: str) -> float:
        """0: go on. Else the seconds until the next request will be taken."""
        now = time.monotonic()
        left, then = self._left.pop(who, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        if len(self._left) >= _MOST_KNOWN:
            del self._left[next(iter(self._left))]  # the one that has asked least recently
        self._left[who] = (left - 1.0 if left >= 1.0 else left, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate


class Turns:
    """Answers of one kind, so many at once: those that nobody waits for any more, too. The rest wait for their turn."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def run(self, function: Callable[..., Answer], *args: Any) -> Answer:
        """What it answers, computed in a thread. Raises BenchError where nobody waits any more when its turn comes."""
        async with self._free:
            refuse_unwanted()
            return await run_in_threadpool(function, *args)


class TooLarge(Exception):  # noqa: N818 - an answer
    """The body of a request is larger than is taken."""


class TooManyAtOnce(Exception):  # noqa: N818 - an answer
    """The bodies of a client's requests that are not answered yet are together larger than is taken."""


class BodyRoom:
    """The memory that the bodies of each client's unanswered requests may take together."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, Counter[str]()

    @contextlib.contextmanager
    def reserve(self, client: str, size: int) -> Iterator[None]:
        """Count the body of a request until it is answered. Raises TooManyAtOnce."""
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
    """The size that a request states for its body, or else the most that is taken. Raises TooLarge."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    if not length.isdigit():
        return most
    if int(length) > most:
        raise TooLarge
    return int(length)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """The whole body; None if the client closed the connection before its end. Raises TooLarge, and TimeoutError."""
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
    """A body that was read, once more; then whatever comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again
