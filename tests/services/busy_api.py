"""A proxy before a real Kubernetes API server that is busy, forgets versions and has another clock, as asked for."""

import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from benchhouse.http.kubeconfig import ClusterAccess, tls_context

RETRY_S = 1
_STAMP = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"')
_GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@dataclass
class BusyApi:
    url: str
    ahead_s: float
    """How far the clock of what answers is ahead of ours."""
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Each request as `GET pods`, `WATCH pods`, ..., and when it came."""
    refused: set[str] = field(default_factory=set)
    """Those that were told to come again after RETRY_S: the first of each kind, and of a watch also the first that
    began, which is told that its version is forgotten."""
    gone: int = 0

    def kubeconfig(self, path: Path) -> str:
        entries = {
            "clusters": [{"name": "busy", "cluster": {"server": self.url}}],
            "users": [{"name": "busy", "user": {}}],
            "contexts": [{"name": "busy", "context": {"cluster": "busy", "user": "busy"}}],
        }
        path.write_text(json.dumps(entries | {"current-context": "busy"}))
        return str(path)

    def shift(self, body: bytes) -> bytes:
        def moved(match: re.Match[bytes]) -> bytes:
            time_there = datetime.fromisoformat(match[1].decode()) + timedelta(seconds=self.ahead_s)
            return f'"{time_there:%Y-%m-%dT%H:%M:%SZ}"'.encode()

        return _STAMP.sub(moved, body)

    def is_first(self, kind: str) -> bool:
        is_first = kind not in self.refused
        self.asked.append((kind, time.monotonic()))
        self.refused.add(kind)
        return is_first

    def gaps(self) -> dict[str, float]:
        """Of each kind that came again, the time between its first two requests."""
        times: dict[str, list[float]] = {}
        for kind, at in self.asked:
            times.setdefault(kind, []).append(at)
        return {kind: stamps[1] - stamps[0] for kind, stamps in times.items() if len(stamps) > 1}


@contextmanager
def busy(access: ClusterAccess, ahead_s: float = 0.0) -> Iterator[BusyApi]:
    """Requests are made as `access` says, whoever asks."""
    server, context = urlsplit(access.server), tls_context(access)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            is_watch = "watch=1" in url.query
            words = url.path.split("/namespaces/")[-1].split("/")
            verb = "WATCH" if is_watch else "TRY" if "dryRun" in url.query else self.command
            kind = f"{verb} {words[1] if len(words) > 1 else words[0]}"
            if api.is_first(kind):
                message = {"kind": "Status", "reason": "TooManyRequests", "message": "the server is busy"}
                self._answer(429, json.dumps(message).encode(), {"Retry-After": str(RETRY_S)})
                return
            connection = http.client.HTTPSConnection(server.hostname or "", server.port, context=context)
            passed = {key: self.headers[key] for key in ("Accept", "User-Agent", "Content-Type") if key in self.headers}
            connection.request(self.command, self.path, body, passed)
            answer = connection.getresponse()
            if is_watch and answer.status == 200:
                self._stream(answer)
            else:
                self._answer(answer.status, api.shift(answer.read()))
            connection.close()

        do_POST = do_DELETE = do_GET  # noqa: N815 - as http.server has them

        def _stream(self, answer: http.client.HTTPResponse) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for line in answer:
                try:
                    self.wfile.write(api.shift(line))
                    self.wfile.flush()
                except BrokenPipeError:  # whoever watched has ended
                    return
                if not api.gone:
                    api.gone += 1
                    self.wfile.write(json.dumps(_GONE).encode() + b"\n")
                    return

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in ((headers or {}) | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    api = BusyApi(f"http://127.0.0.1:{listener.server_port}", ahead_s)
    Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield api
    finally:
        listener.shutdown()
        listener.server_close()
