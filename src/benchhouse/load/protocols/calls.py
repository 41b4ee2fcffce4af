"""What the load engine and a driver say to each other: an exchange of bytes with its stamps, and what was made of it.

All stamps are nanoseconds of the monotonic clock (`time.monotonic_ns`).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol


@dataclass(slots=True)
class Exchange:
    """One HTTP answer as it came: the engine moved the bytes and stamped them; nothing has been understood yet."""

    sent_ns: int  # just before the first byte of the request was handed to the kernel
    status: int = 0
    head: bytes = b""  # status line and header lines
    body: bytes = b""  # without the transfer encoding; empty where a sink took it
    marks: "array[int]" = field(default_factory=lambda: array("q"))
    """Three numbers of each read: size of the body after it, when the last of it arrived, and when the first did at the
    earliest."""
    ended_ns: int = 0
    size: int = 0  # of the body, kept or not
    sink: "BodySink | None" = None  # what took the body of a good answer, where it was not to be kept
    sending_ns: int = 0  # how long handing over the request took: it may have left at the end of that


class BodySink(Protocol):
    """Takes the body of a good answer piece by piece, as it comes. A piece is valid during the call only."""

    def __call__(self, piece: bytes | memoryview, /) -> None: ...


def discard(piece: bytes | memoryview, /) -> None:
    """A sink for what is only counted. The kernel need not hand it over: what `piece` holds then is not what came."""


@dataclass(slots=True)
class CallResult:
    """What one request came to. Exactly one of `error` and a good answer; an error never counts as a latency."""

    error: str | None = None  # a kind from ERRORS, or `http_<status>`
    detail: str = ""  # for a person: the server's own words, cut short
    token_ns: Sequence[int] = ()  # one stamp for each event that brought output, in order; empty when not streamed
    unsure_ns: Sequence[int] = ()  # how much earlier each of these may have come; empty: they are as stamped
    input_tokens: int | None = None  # as counted by the server
    output_tokens: int | None = None
    cached_tokens: int | None = None  # of the input, served from the server's cache, where it says so
    finish: str = ""  # why the output ended: stop, length, ...
    text: str = ""  # the output, only when the driver was asked to keep it (multi-turn)
    size: int = 0  # payload bytes of the answer
    count: float = 1  # operations in this one call: rows, vectors, images of a batch
    value: Any = None  # what was answered, where the experiment checks it


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
CONNECTING = ("refused", "dns", "tls")  # of these, what says that there was no connection


class HttpDriver(Protocol):
    """Speaks a protocol over HTTP/1.1: it makes requests and reads answers; the engine moves and stamps the bytes.

    `request` may be slow and is called before the measured time where the item allows; `read` is called after the
    answer is complete and the connection has its next request, so that it delays no stamp.
    """

    transport: ClassVar[Literal["http"]]
    url: str  # scheme, host and port that the engine connects to

    def request(self, item: Any) -> bytes:
        """The whole HTTP request for one item of the workload: request line, headers, body."""

    def read(self, exchange: Exchange) -> CallResult: ...


class CallFailed(Exception):  # noqa: N818 - an outcome of one call, not a bug
    """A call came to nothing for a reason that has a name: `kind` is one of ERRORS, or the driver's own word for it."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class CallDriver(Protocol):
    """Makes one blocking call at a time; the engine runs one driver object in each of its threads.

    `call` raises CallFailed, or returns a Reply with an error, where the server did not do what it was asked. Where
    microseconds matter, a driver also has `ask(item)`, which returns anything but a Reply, `reply(item, answer)`, which
    makes a Reply of that later, with nothing but `count` and `value`, and `operations(items, answers)`, the sum of
    their counts.
    """

    transport: ClassVar[Literal["call"]]

    def open(self) -> None:
        """Connect; called once in the thread, before the measured time."""

    def call(self, item: Any) -> CallResult: ...

    def close(self) -> None: ...
