"""The interface between the load engine and a driver: an exchange of bytes with its stamps, and the result read from
it.

All stamps are nanoseconds of the monotonic clock (`time.monotonic_ns`).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol


@dataclass(slots=True)
class Exchange:
    """One HTTP answer as received: the engine moved and stamped the bytes; nothing is parsed yet."""

    sent_ns: int  # just before the first byte of the request was handed to the kernel
    status: int = 0
    head: bytes = b""  # status line and header lines
    body: bytes = b""  # without the transfer encoding; empty if a sink took it
    marks: "array[int]" = field(default_factory=lambda: array("q"))
    """Three numbers per read: the size of the body after it, when its last byte arrived, and the earliest time at which
    its first byte can have arrived."""
    ended_ns: int = 0
    size: int = 0  # of the body, stored or not
    sink: "BodySink | None" = None  # what took the body of a good answer that was not to be stored
    sending_ns: int = 0  # how long handing over the request took: it may have left only at the end of that time


class BodySink(Protocol):
    """Takes the body of a good answer piece by piece, as it arrives. A piece is valid only during the call."""

    def __call__(self, piece: bytes | memoryview, /) -> None: ...


def discard(piece: bytes | memoryview, /) -> None:
    """A sink for data that is only counted. The kernel need not copy it, so `piece` may not contain what arrived."""


@dataclass(slots=True)
class CallResult:
    """The result of one request: either an `error` or a good answer; an error never counts as a latency."""

    error: str | None = None  # a kind from ERRORS, or `http_<status>`
    detail: str = ""  # for a person: the server's own message, truncated
    token_ns: Sequence[int] = ()  # one stamp for each event that brought output, in order; empty if not streamed
    unsure_ns: Sequence[int] = ()  # how much earlier each of these may have arrived; empty if the stamps are exact
    input_tokens: int | None = None  # as counted by the server
    output_tokens: int | None = None
    # input tokens served from the server's cache; None if the server does not report them
    cached_tokens: int | None = None
    finish: str = ""  # why the output ended: stop, length, ...
    text: str = ""  # the output, only if the driver was configured to return it (multi-turn)
    size: int = 0  # payload bytes of the answer
    count: float = 1  # operations in this call: rows, vectors, images of a batch
    value: Any = None  # the content of the answer, if the experiment checks it


ERRORS = {
    "dns": "the host name could not be resolved",
    "refused": "the connection was refused or could not be made",
    "tls": "the TLS handshake failed",
    "reset": "the connection was closed or reset before the answer was complete",
    "timeout": "no complete answer within the time limit",
    "redirect": "the server answered with a redirect, which is not followed",
    "malformed": "the answer is not what the protocol says",
    "server_error": "the server sent an error inside a stream that had begun well",
    "empty": "a good answer without any output",
    "corrupt": "the content of a good answer is not what was written",
    "client": "the driver itself failed",
    "lost": "the load process that waited for the answer died",
}
CONNECTING = ("refused", "dns", "tls")  # the kinds that mean that there was no connection


class HttpDriver(Protocol):
    """A driver for a protocol over HTTP/1.1: it builds requests and reads answers; the engine moves and stamps the
    bytes.

    `request` may be slow; it is called before the measured time if the item allows it. `read` is called after the
    answer is complete and the connection has its next request, so that it delays no stamp.
    """

    transport: ClassVar[Literal["http"]]
    url: str  # scheme, host, and port that the engine connects to

    def request(self, item: Any) -> bytes:
        """Return the whole HTTP request for one item of the workload: request line, headers, body."""

    def read(self, exchange: Exchange) -> CallResult: ...


class CallFailed(Exception):  # noqa: N818 - an outcome of one call, not a bug
    """A call failed for a known reason: `kind` is one of ERRORS, or a name that the driver defines."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class CallDriver(Protocol):
    """Makes one blocking call at a time; the engine runs one driver object in each of its threads.

    `call` raises CallFailed, or returns a reply with an error, if the server did not do what was requested. If
    microseconds matter, a driver also has `ask(item)`, which returns anything but a reply; `reply(item, answer)`, which
    later makes a reply of that, with only `count` and `value`; and `operations(items, answers)`, the sum of their
    counts.
    """

    transport: ClassVar[Literal["call"]]

    def open(self) -> None:
        """Connect; called once in the thread, before the measured time."""

    def call(self, item: Any) -> CallResult: ...

    def close(self) -> None: ...
