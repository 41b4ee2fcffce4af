"""Requests to HTTP servers outside the measured load: bounded in time and size, without secrets in error messages.

Importing this takes as long as `urllib.request` does (tens of milliseconds), so short-lived commands import it only
where needed. The load engine has its own sockets.
"""

import base64
import functools
import json
import math
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, BinaryIO, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import read_json
from benchhouse.schema.secrets import blanker, split_userinfo, without_secrets

Failure = Literal["address", "dns", "timeout", "refused", "reset", "tls", "too_large", "malformed"]
_PIECE_BYTES = 1 << 20
_WINDOW_S, _LEAST_RATE = 60.0, 1024  # a download with fewer bytes per second in such a window is given up
_MOST_REDIRECTS = 5


class NoAnswer(BenchError):  # noqa: N818 - what happened, in two words
    """There is no complete HTTP answer. `reason` leaves out the address; neither holds a secret of the address."""

    def __init__(self, address: str, failure: Failure, reason: str, hint: str = "") -> None:
        super().__init__(f"{address}: {reason}", hint)
        self.failure, self.reason = failure, reason


@dataclass(frozen=True)
class Response:
    """An answer of any status."""

    address: str  # for messages: without secrets
    status: int
    reason: str
    headers: Message  # names in any case
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def text(self, limit: int = -1) -> str:
        return self.body[: limit if limit >= 0 else None].decode("utf-8", "replace")

    def json(self) -> Any:
        try:
            return read_json(self.body)
        except ValueError:
            raise NoAnswer(self.address, "malformed", f"answers no JSON but {self.body[:60]!r}") from None


@dataclass(frozen=True)
class DownloadLimits:
    """The largest size and the longest time of a download."""

    max_bytes: int = 100 * 10**9
    max_time_s: float = 6 * 3600.0


class DownloadMeter:
    """A counter of a download's bytes that raises NoAnswer beyond the limits or at a rate near zero."""

    def __init__(self, address: str, limits: DownloadLimits) -> None:
        self._address, self._limits = address, limits
        self._started_s = self._window_s = time.monotonic()
        self._bytes = self._window_bytes = 0

    def expect(self, size: int) -> None:
        """Raise NoAnswer if the announced size is too large."""
        if self._bytes + size > self._limits.max_bytes:
            reason = f"has more than {self._limits.max_bytes:,} bytes"
            raise NoAnswer(self._address, "too_large", reason, "check the address, or raise the limit of the source")

    def count(self, size: int) -> None:
        self.expect(size)
        self._bytes += size
        self._window_bytes += size
        now = time.monotonic()
        if now - self._started_s > self._limits.max_time_s:
            reason = f"was not complete after {self._limits.max_time_s:g} s"
            raise NoAnswer(self._address, "timeout", reason, "raise the time limit of the source, or use a faster one")
        if now - self._window_s > _WINDOW_S:
            if self._window_bytes < _LEAST_RATE * _WINDOW_S:
                reason = f"sent fewer than {_LEAST_RATE} bytes per second for {_WINDOW_S:g} s"
                raise NoAnswer(self._address, "timeout", reason, "try again, or use another source")
            self._window_s, self._window_bytes = now, 0


@dataclass(frozen=True)
class HttpClient:
    """Settings of requests. Without `proxy` the environment's proxy is not used, as by the load on servers under test.

    Credentials in an address (`http://name:password@host`) are sent as basic authorization.
    """

    timeout_s: float
    total: bool = True  # `timeout_s` limits the whole exchange, however slow; otherwise each wait
    wait_s: float = math.inf  # the longest wait for more bytes, if `timeout_s` limits the whole exchange
    limit_bytes: int = 16 << 20
    verify_tls: bool = True
    proxy: bool = False
    redirects: bool = False  # followed; to another host without the Authorization header

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Response:
        return self.request("GET", url, headers=headers)

    def post_json(self, url: str, value: Any, headers: Mapping[str, str] | None = None) -> Response:
        return self.request(
            "POST", url, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def request(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return the answer, whatever its status. Raise NoAnswer if there is none."""
        address, request = without_secrets(url), _request(method, url, body, headers or {})
        try:
            with self._open(request) as answer:
                data = answer.read(self.limit_bytes + 1)
                response = Response(address, answer.status, answer.reason or "", answer.headers, data)
        except (OSError, HTTPException, ValueError) as error:
            raise self._no_answer(url, error) from error
        if len(data) > self.limit_bytes:
            raise NoAnswer(address, "too_large", f"answers more than {self.limit_bytes >> 20} MiB")
        announced = response.headers.get("Content-Length") or "0"
        if not (announced.isascii() and announced.isdigit()):
            raise NoAnswer(address, "malformed", f"says that its length is {announced[:40]!r}")
        if method != "HEAD" and len(data) < int(announced[:18]):
            raise NoAnswer(address, "reset", "ended in the middle of its answer")
        return response

    def download(self, url: str, target: BinaryIO, limits: DownloadLimits) -> None:
        """Write a file. Raise NoAnswer, also for an error status or beyond the limits, and OSError from the target."""
        for piece in self._pieces(url, limits):
            target.write(piece)

    def _pieces(self, url: str, limits: DownloadLimits) -> Iterator[bytes]:
        request, address = _request("GET", url, None, {}), without_secrets(url)
        meter = DownloadMeter(address, limits)
        try:
            with self._open(request) as answer:
                if answer.status != 200:
                    raise NoAnswer(address, "refused", f"answers {answer.status} {answer.reason or ''}".rstrip())
                meter.expect(answer.length or 0)
                while piece := answer.read1(_PIECE_BYTES):  # whatever has arrived, so that a slow server is noticed
                    meter.count(len(piece))
                    yield piece
                if answer.length:  # http.client takes a truncated body for a complete one
                    raise IncompleteRead(b"", answer.length)
        except (OSError, HTTPException, ValueError) as error:
            raise self._no_answer(url, error) from error

    def _open(self, request: Request) -> Any:
        try:
            return self._opener.open(request, timeout=self.timeout_s)
        except HTTPError as refusal:
            return refusal  # an error status is an answer, too

    @functools.cached_property
    def _opener(self) -> OpenerDirector:
        return urllib.request.build_opener(
            ProxyHandler() if self.proxy else ProxyHandler({}),
            _Redirects() if self.redirects else _NoRedirects(),
            _PlainHandler(self.total, self.wait_s),
            _TlsHandler(self.total, self.wait_s, self.verify_tls),
        )

    def _no_answer(self, url: str, error: Exception) -> NoAnswer:
        cause: object = error.reason if isinstance(error, URLError) else error
        failure, reason = _explain(cause, min(self.timeout_s, self.wait_s))
        address, userinfo = split_userinfo(url)
        secrets = [url, address.partition("?")[2], userinfo, *userinfo.split(":", 1)]
        return NoAnswer(without_secrets(url), failure, blanker([text for text in secrets if text])(reason))


def _request(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Request:
    address, credentials = split_userinfo(url)
    if not _is_address(address):
        raise NoAnswer(
            without_secrets(url), "address", "is not the address of a server", "for example http://127.0.0.1:8000"
        )
    request = Request(  # noqa: S310 - http or https, as checked above
        address, body, {"User-Agent": "benchhouse", **headers}, method=method
    )
    if credentials and not request.has_header("Authorization"):
        coded = base64.b64encode(unquote(credentials).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {coded}")
    return request


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # the port is not a number, or brackets do not match
        return False


def _explain(cause: object, timeout_s: float) -> tuple[Failure, str]:
    text = str(getattr(cause, "strerror", None) or cause)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, TimeoutError):
        return "tls", f"TLS: {getattr(cause, 'verify_message', '') or cause.reason or text}"
    if isinstance(cause, socket.gaierror):
        return "dns", text
    if isinstance(cause, TimeoutError):
        return "timeout", f"did not answer within {timeout_s:g} s"
    if isinstance(cause, IncompleteRead):
        return "reset", "ended in the middle of its answer"
    if isinstance(cause, ConnectionRefusedError):
        return "refused", text
    if isinstance(cause, ConnectionError):  # before HTTPException: RemoteDisconnected is both
        return "reset", text
    if isinstance(cause, HTTPException):
        return "malformed", "does not speak HTTP"
    return ("refused" if isinstance(cause, OSError) else "malformed"), text


class _UntilDeadline:
    """A socket that is read until a deadline, with no new time per piece: a byte per second does not keep it open."""

    deadline_s = wait_s = math.inf

    def recv_into(self, *arguments: Any) -> int:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(min(left_s, self.wait_s))  # type: ignore[attr-defined]
        received: int = super().recv_into(*arguments)  # type: ignore[misc]
        return received


class _PlainSocket(_UntilDeadline, socket.socket):
    pass


class _TlsSocket(_UntilDeadline, ssl.SSLSocket):
    pass


class _Limited:
    """A connection whose exchange ends at a deadline, and earlier if nothing arrives for `wait_s`."""

    def __init__(self, host: str, /, *, timeout: float = math.inf, wait_s: float = math.inf, **named: Any) -> None:
        super().__init__(host, timeout=min(timeout, wait_s), **named)  # type: ignore[call-arg]
        self._deadline_s, self._wait_s = time.monotonic() + timeout, wait_s

    def _limit(self, connected: _UntilDeadline) -> None:
        connected.deadline_s, connected.wait_s = self._deadline_s, self._wait_s


class _PlainConnection(_Limited, HTTPConnection):
    def connect(self) -> None:
        super().connect()
        connected = _PlainSocket(fileno=self.sock.detach())
        connected.settimeout(self.timeout)
        self._limit(connected)
        self.sock = connected


class _TlsConnection(_Limited, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, _TlsSocket)  # set by `_tls_context`
        self._limit(self.sock)


class _PlainHandler(HTTPHandler):
    def __init__(self, total: bool, wait_s: float) -> None:
        super().__init__()
        self._total, self._wait_s = total, wait_s

    def http_open(self, req: Request) -> HTTPResponse:
        if not self._total:
            return self.do_open(HTTPConnection, req)
        return self.do_open(_PlainConnection, req, wait_s=self._wait_s)


class _TlsHandler(HTTPSHandler):
    def __init__(self, total: bool, wait_s: float, verify: bool) -> None:
        super().__init__(context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # avoids an unused full context
        self._total, self._wait_s, self._verify = total, wait_s, verify

    def https_open(self, req: Request) -> HTTPResponse:
        context = _tls_context(self._verify, self._total)
        if not self._total:
            return self.do_open(HTTPSConnection, req, context=context)
        return self.do_open(_TlsConnection, req, context=context, wait_s=self._wait_s)


@functools.cache
def _tls_context(verify: bool, total: bool) -> ssl.SSLContext:
    """Return a TLS context, made on first use because loading the certificates of all authorities takes time."""
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if total:
        context.sslsocket_class = _TlsSocket
    return context


class _Redirects(HTTPRedirectHandler):
    max_redirections = _MOST_REDIRECTS

    def redirect_request(self, req: Request, *rest: Any) -> Request | None:
        request = super().redirect_request(req, *rest)
        if request is not None and request.type not in ("https", req.type):
            raise URLError(f"leads from {req.type} to {request.type}, which is not followed")
        if request is not None and request.host != req.host:
            request.remove_header("Authorization")
        return request


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
