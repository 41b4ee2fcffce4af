"""Fetch a page of metrics within a limit of time and of size, whatever the other side does."""

import http.client
import io
import socket
import ssl
import time
from urllib.parse import urlsplit

_ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1"
_PIECE = 1 << 16


class ScrapeError(Exception):
    """Why there is no page; its text is for people."""


class _Until(io.RawIOBase):
    """A socket that is read until a moment, not for a time a piece: one that drips a byte a second ends too."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection, self._deadline_s = connection, deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        left = self._deadline_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self, _PIECE)


def fetch(url: str, limit_s: float, limit_bytes: int) -> bytes:
    """The body of an answer 200. Redirects are not followed: a monitor reads what it was told to read."""
    deadline_s = time.monotonic() + limit_s
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((host, port), timeout=limit_s) as plain:
            connection = _secured(plain, host) if parts.scheme == "https" else plain
            path = f"{parts.path or '/metrics'}{f'?{parts.query}' if parts.query else ''}"
            name = f"[{host}]" if ":" in host else host
            head = f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nAccept: {_ACCEPT}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode("latin-1"))
            response = http.client.HTTPResponse(_Until(connection, deadline_s))  # type: ignore[arg-type]
            response.begin()
            if response.status != http.client.OK:
                raise ScrapeError(f"answers {response.status} {response.reason}")
            body = response.read(limit_bytes + 1)
    except (TimeoutError, ValueError, OSError, http.client.HTTPException) as error:
        raise ScrapeError(_words(error, limit_s)) from error
    if len(body) > limit_bytes:
        raise ScrapeError(f"answers more than {limit_bytes >> 20} MiB")
    return body


def _secured(plain: socket.socket, host: str) -> socket.socket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _words(error: Exception, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"did not answer within {limit_s:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return "ended in the middle of its answer"
    if isinstance(error, http.client.HTTPException):
        return "does not speak HTTP"
    return str(getattr(error, "strerror", None) or error)
