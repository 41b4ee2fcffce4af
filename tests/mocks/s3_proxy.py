"""A proxy before a real S3 server that does known harm: it delays, refuses, spoils or swallows every n-th request."""

import hashlib
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from mocks.scripted import ScriptedServer, Wire

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class S3Proxy:
    """Every n-th request whose first line matches `only` is harmed; all others pass as they are."""

    upstream: str
    harm: str  # delay, refuse; of an answer: corrupt, cut; of a put: swallow, alter, spoil (alter, and hide it)
    every: int
    only: str = r"GET .*/read/"
    delay_s: float = 0.1
    matched: int = 0
    harmed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._server = ScriptedServer(self._pass_on).__enter__()
        self.url = self._server.url
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.__exit__(None, None, None)

    def _pass_on(self, wire: Wire) -> None:
        parts = urlsplit(self.upstream)
        assert parts.hostname and parts.port
        with socket.create_connection((parts.hostname, parts.port)) as upstream:
            while request := wire.request():
                if not self._meets(request):
                    wire.send(_ask(upstream, request))
                elif not self._harm(wire, upstream, request):
                    return

    def _meets(self, request: bytes) -> bool:
        if not re.match(self.only, request.partition(b"\r\n")[0].decode()):
            return False
        with self._lock:
            self.matched += 1
            meets = self.matched % self.every == 0
            self.harmed += meets
        return meets

    def _harm(self, wire: Wire, upstream: socket.socket, request: bytes) -> bool:
        """Whether the connection lives on."""
        body = request.partition(b"\r\n\r\n")[2]
        etag = hashlib.md5(body).hexdigest().encode()
        if self.harm == "refuse":
            wire.send(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n" % len(SLOW_DOWN) + SLOW_DOWN)
        elif self.harm == "swallow":
            wire.send(b'HTTP/1.1 200 OK\r\nETag: "%s"\r\nContent-Length: 0\r\n\r\n' % etag)
        elif self.harm == "alter":
            wire.send(_ask(upstream, _flipped(request)))
        elif self.harm == "spoil":
            answer = _ask(upstream, _flipped(request))
            wire.send(re.sub(rb'(?i)(etag: )"[0-9a-f]+"', rb'\1"%s"' % etag, answer))
        elif self.harm == "corrupt":
            wire.send(_flipped(_ask(upstream, request)))
        elif self.harm == "cut":
            answer = _ask(upstream, request)
            wire.send(answer[: -len(answer.partition(b"\r\n\r\n")[2]) // 2])
            return False
        else:
            answer = _ask(upstream, request)
            time.sleep(self.delay_s)
            wire.send(answer)
        return True


def _flipped(message: bytes) -> bytes:
    """With one bit changed in the middle of its body."""
    at = len(message) - len(message.partition(b"\r\n\r\n")[2]) // 2
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


def _ask(upstream: socket.socket, request: bytes) -> bytes:
    """The whole answer; the server always says how long it is."""
    upstream.sendall(request)
    answer = b""
    while True:
        head, found, body = answer.partition(b"\r\n\r\n")
        if found:
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            if b" 204 " in head[:16] or len(body) >= int(length[1] if length else 0):
                return answer
        piece = upstream.recv(1 << 18)
        if not piece:
            return answer
        answer += piece
