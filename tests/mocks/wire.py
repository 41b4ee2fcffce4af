"""A client that takes nothing for granted: raw sockets, every received piece kept, strict HTTP/1.1 framing."""

import contextlib
import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from mocks.llm import MockLLM

END = "data: [DONE]"


@dataclass
class Heard:
    """What came back on a connection for one request, as it came."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)  # (monotonic ns, bytes) of each receive
    over: str = "open"  # how the connection was left: open, closed, reset

    @property
    def raw(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    @property
    def chunks(self) -> list[bytes] | None:
        """The chunks of a complete chunked body without the last, empty one; None while it is not complete."""
        rest, found = self.raw.partition(b"\r\n\r\n")[2], []
        while b"\r\n" in rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            assert size == f"{length:x}".encode()
            if len(rest) < length + 2:
                return None
            assert rest[length : length + 2] == b"\r\n"
            if not length:
                assert rest == b"\r\n", "bytes behind the end of the body"
                return found
            found.append(rest[:length])
            rest = rest[length + 2 :]
        return None

    @property
    def body(self) -> bytes | None:
        """The complete body, or None."""
        head, found, rest = self.raw.partition(b"\r\n\r\n")
        if not found:
            return None
        if b"chunked" in head:
            # The cheap look first: a client that parses all at every receive is too slow to see odd writes apart.
            chunks = self.chunks if rest.endswith(b"0\r\n\r\n") else None
            return None if chunks is None else b"".join(chunks)
        length = int(self.headers["content-length"])
        assert len(rest) <= length
        return rest if len(rest) == length else None

    @property
    def lines(self) -> list[str]:
        """The data lines of a complete stream of events."""
        assert self.body is not None, f"not complete: {self.raw!r}"
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        return blocks

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line.removeprefix("data: ")) for line in self.lines if line != END]

    @property
    def text(self) -> str:
        choices = [choice for event in self.events for choice in event.get("choices", ())]
        return "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)

    @property
    def finish(self) -> str:
        return str([choice for event in self.events for choice in event["choices"]][-1]["finish_reason"])


def request(prompt: str = "one two three", path: str = "/v1/completions", **body: Any) -> bytes:
    """A whole streamed request for eight tokens, unless `body` says otherwise."""
    asked = {"messages": [{"role": "user", "content": prompt}]} if "chat" in path else {"prompt": prompt}
    asked |= {"model": "mock", "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}} | body
    return post(json.dumps(asked).encode(), path)


def post(body: bytes, path: str = "/v1/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: mock\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def connect(server: MockLLM) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def hear(connection: socket.socket, patience_s: float = 10) -> Heard:
    """Receives until the answer is complete, the connection over or nothing came for `patience_s`."""
    heard = Heard()
    connection.settimeout(patience_s)
    with contextlib.suppress(TimeoutError):
        while heard.body is None:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                heard.over = "reset"
                break
            if not piece:
                heard.over = "closed"
                break
            heard.pieces.append((time.monotonic_ns(), piece))
    return heard


def ask(server: MockLLM, prompt: str = "one two three", patience_s: float = 10, **body: Any) -> Heard:
    """One request on a connection of its own."""
    with connect(server) as connection:
        connection.sendall(request(prompt, **body))
        return hear(connection, patience_s)
