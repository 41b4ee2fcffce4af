"""Checks whether a server is up, as its recipe defines: often, so that little time is lost, and without ever
hanging."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING

from benchhouse.schema.errors import BenchError
from benchhouse.schema.recipe import LOOPBACK, Ready, fill

if TYPE_CHECKING:
    from benchhouse.http.client import HttpClient

_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.005, 0.1
_ANSWER_S = 2.0
_LOG_LINES = 1000
_SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse: status 1


class ServerProbe:
    """Probes one server. `places` contains its ports; `log` returns the last lines that it wrote."""

    def __init__(
        self,
        ready: Ready,
        endpoint: str,
        places: dict[str, str],
        log: Callable[[int], str],
        command: Sequence[str] | None = None,  # the probe's command if a container is in between
    ) -> None:
        self.ready, self.places = ready, places
        self.url = fill(ready.url, places) or endpoint
        self._port = int(places[ready.port]) if ready.kind == "tcp" else 0
        self._host = places.get("host", LOOPBACK)
        self._command = command or [fill(word, places) for word in ready.command]
        self._log = log
        self.answers = {  # one probe; raises BenchError if it is impossible on this machine
            "http": self._by_http, "tcp": self._by_port, "grpc": self._by_grpc, "sql": self._by_sql,
            "log": self._by_log, "command": self._by_command,
        }[ready.kind]  # fmt: skip
        self._client: HttpClient | None = None
        self._times = self._good = 0

    @property
    def question(self) -> str:
        """A description of the probe, for people."""
        if self.ready.kind == "tcp":
            return f"port {self._port}"
        if self.ready.kind == "log":
            return f"a line of its log like {self.ready.pattern!r}"
        return " ".join(fill(word, self.places) for word in self.ready.command) or self.url

    @property
    def flaps(self) -> str:
        """How the server came and went during the wait, as a message; otherwise empty."""
        if not self._good:
            return ""
        often = f"{self.ready.in_a_row} times in a row"
        return f"it was up {self._good} of the {self._times} times that it was asked, and never {often}"

    def wait(self, ended: Callable[[], int | None]) -> bool:
        """Probe until it is up as many times in a row as the recipe requires. Return False at the timeout, or if it
        `ended`."""
        deadline = monotonic() + self.ready.timeout
        pause, in_a_row = _FIRST_PAUSE_S, 0
        while ended() is None:
            good = self.answers()
            self._times, self._good = self._times + 1, self._good + good
            in_a_row = in_a_row + 1 if good else 0
            if in_a_row >= self.ready.in_a_row:
                return True
            if monotonic() > deadline:
                return False
            sleep(min(pause, max(deadline - monotonic(), 0.0)))
            pause = min(pause * 1.3, _MOST_PAUSE_S)
        return False

    def _by_command(self) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(self._command, capture_output=True, timeout=10, check=False).returncode == 0
        return False

    def _by_port(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self._host, self._port), timeout=_ANSWER_S):
            return True
        return False

    def _by_http(self) -> bool:
        from benchhouse.http.client import HttpClient, NoAnswer  # other kinds of probes avoid the import

        if self._client is None:
            self._client = HttpClient(_ANSWER_S, verify_tls=self.ready.verify_tls, redirects=True)
        with contextlib.suppress(NoAnswer):
            return self._client.get(self.url).status == 200
        return False

    def _by_log(self) -> bool:
        return re.search(self.ready.pattern, self._log(_LOG_LINES), re.MULTILINE) is not None

    def _by_grpc(self) -> bool:
        """Probe the standard health service without its generated code: an empty request, and one small field."""
        try:
            import grpc
        except ImportError as error:
            raise BenchError("the gRPC probe needs grpcio", "pip install grpcio") from error
        address = self.url.rpartition("//")[2].partition("/")[0]
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            ask = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                return bytes(ask(b"", timeout=_ANSWER_S)).startswith(_SERVING)
            except grpc.RpcError:
                return False

    def _by_sql(self) -> bool:
        try:
            import psycopg
        except ImportError as error:
            raise BenchError("the SQL probe needs psycopg", "pip install 'benchhouse[postgres]'") from error
        try:
            connection = psycopg.connect(self.url, connect_timeout=2)
        except psycopg.Error:
            return False
        with contextlib.closing(connection), contextlib.suppress(psycopg.Error):
            connection.execute(self.ready.query.encode())
            return True
        return False
