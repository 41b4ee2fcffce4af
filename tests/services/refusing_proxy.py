"""A proxy before a real S3 server that answers some requests itself: with an error, or with half of the content."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

HALF = 0
"""Instead of a status: the headers of the whole answer, half of its body, and the end of the connection."""


@dataclass
class Refusal:
    """What becomes of requests whose path has `part` in it, the first `times` of them."""

    part: str
    status: int
    times: float = float("inf")
    method: str = "GET"


@dataclass
class RefusingProxy:
    url: str
    refusals: list[Refusal] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request."""

    def refusal(self, method: str, path: str) -> Refusal | None:
        self.asked.append((method, path))
        for item in self.refusals:
            if item.part in path and item.method == method and item.times > 0:
                item.times -= 1
                return item
        return None


@contextmanager
def refusing(server_url: str, at: str = "127.0.0.1") -> Iterator[RefusingProxy]:
    host = urlsplit(server_url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refusal = proxy.refusal(self.command, self.path)
            if refusal and refusal.status:
                self._answer(
                    refusal.status, {}, b"<Error><Code>InternalError</Code><Message>not well</Message></Error>"
                )
                return
            connection = http.client.HTTPConnection(host)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            self._answer(answer.status, {"ETag": answer.headers.get("ETag", "")}, content, half=refusal is not None)

        do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - as http.server has them

        def _answer(self, status: int, headers: dict[str, str], body: bytes, *, half: bool = False) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if half else body)
            self.close_connection = self.close_connection or half

    server = ThreadingHTTPServer((at, 0), Handler)
    proxy = RefusingProxy(f"http://{at}:{server.server_port}")
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
