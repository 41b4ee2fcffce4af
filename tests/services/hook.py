"""A web server that keeps what is posted to it, as a webhook's other end does."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def hears(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """Its address, with a secret in its path, and the JSON that has arrived."""
    heard: list[Any] = []

    class Keeps(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keeps) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hooks/hunter2222", heard
        finally:
            server.shutdown()
            thread.join()
