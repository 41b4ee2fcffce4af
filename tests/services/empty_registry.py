"""A registry of images that has none for this machine: `old:1` is for another architecture, all else is not there."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_INDEX = "application/vnd.oci.image.index.v1+json"
_FOREIGN = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": f"sha256:{'0' * 64}",
                "size": 2,
                "platform": {"architecture": "s390x", "os": "linux"},
            }
        ],
    }
).encode()


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/v2/old/manifests/"):
            self._answer(200, _INDEX, _FOREIGN)
        else:
            missing = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            self._answer(404, "application/json", json.dumps(missing).encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def empty_registry() -> Iterator[str]:
    """Its address, as the first part of an image's name."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
