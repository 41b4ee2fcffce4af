"""The checks before every page and verb: known hosts, known callers, no forged requests, limits, and safe headers."""

import asyncio
import contextlib
import hmac
import math
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchhouse.serve.access import Authenticator, Caller
from benchhouse.serve.connections import Connections, Peer, network_of
from benchhouse.serve.limits import BodyRoom, Rates, TooLarge, TooManyAtOnce, body_size, read_body, replayed
from benchhouse.serve.pages.shell import trouble, written
from benchhouse.serve.verb_requests import problem
from benchhouse.warehouse.query_deadline import Deadline

FORM = "application/x-www-form-urlencoded"
FORM_TOKEN = "form_token"  # noqa: S105 - a field's name
OPEN = ("/login", "/assets/")
"""Paths that are served to everyone: the login and the assets of the pages."""
BADGES = "/badge/"
SIGNED = "/webhooks/"
"""Paths of requests without a login or a browser: each request carries a signature, which its page checks."""
_WEBHOOKS = 1000.0  # requests per second from one address, which may be a proxy that does not name its clients
_LOGIN_BYTES = 16 << 10  # for the login form, in which an unknown client sends a token
_BODIES = 8  # a client's unanswered requests may together take this many bodies of the largest size
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """An ASGI application that checks each request before it calls another application."""

    def __init__(self, app: ASGIApp, access: Authenticator, connections: Connections) -> None:
        self._app, self._access, self._connections = app, access, connections
        self._rates = Rates(access.settings.rate)
        self._strangers = Rates(1.0, burst=30.0)
        self._signed = Rates(_WEBHOOKS)
        self._bodies = BodyRoom(_BODIES * access.settings.max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":  # there is no WebSocket here
            return
        peer = tuple(scope["client"] or ())[:2]
        self._connections.requested(peer)
        try:
            await self._guard(scope, receive, _with_headers(send), peer)
        finally:
            self._connections.answered(peer)

    async def _guard(self, scope: Scope, receive: Receive, send: Send, peer: Peer) -> None:
        try:
            scope = self._access.place(scope)
        except ValueError as error:
            await problem(400, f"X-Forwarded-Prefix: {error}")(scope, receive, send)
            return
        request = Request(scope)
        caller = self._access.caller(scope)
        scope.update(caller=caller, form_token=self._access.form_token)
        refusal = (
            self._crowded(request, caller, peer) or self._refusal(request, caller) or self._foreign(request, caller)
        )
        if refusal is not None:
            await refusal(scope, receive, send)
        elif request.method in _SAFE:
            await self._in_time(request, receive, send, _disconnection(receive))
        else:
            await self._take_body(request, caller, receive, send)

    async def _take_body(self, request: Request, caller: Caller | None, receive: Receive, send: Send) -> None:
        """Read the body of a request that may write, check its origin, and answer it."""
        client = _name(caller) if caller else network_of(request.scope["address"])
        path = request.url.path.removeprefix(request.scope["root_path"])
        most = self._access.settings.max_body
        if caller is None and not path.startswith(SIGNED):
            most = min(most, _LOGIN_BYTES)
        body = b""
        with contextlib.ExitStack() as reserved:
            try:
                reserved.enter_context(self._bodies.reserve(client, body_size(request.scope, most)))
                sent = await read_body(receive, most)
                if sent is None:
                    return
                body, refusal = sent, self._forged(request, caller, sent)
            except TooLarge:
                refusal = _told(request, 413, f"a request has {most} bytes at most", "the owner's limit is --max-body")
            except TooManyAtOnce:
                refusal = _too_many(request, 1.0)
            except TimeoutError:
                refusal = _told(request, 408, "the rest of the request did not come")
            if refusal is not None:
                await refusal(request.scope, receive, send)
            else:
                await self._in_time(request, replayed(body, receive), send, _disconnection(receive))

    def _crowded(self, request: Request, caller: Caller | None, peer: Peer) -> Response | None:
        """Return the refusal of a client that holds too many connections; None if it may continue."""
        if self._connections.hold(peer, _name(caller) if caller else ""):
            return None
        response = _told(
            request, 429, "too many connections of one client", "close some; the owner's limit is --max-connections"
        )
        response.headers.update({"Retry-After": "1", "Connection": "close"})
        return response

    def _refusal(self, request: Request, caller: Caller | None) -> Response | None:
        """Return the refusal of a request by its host, caller, or rate; None if it may continue."""
        access, host = self._access, request.headers.get("host", "")
        path = request.url.path.removeprefix(request.scope["root_path"])
        if not access.knows_host(host):
            return _told(request, 421, f"this server is not called {host[:80]!r}", "its owner names it: --name HOST")
        network = network_of(request.scope["address"])
        if path.startswith(SIGNED):
            return _too_many(request, wait_s) if (wait_s := self._signed.wait_s(network)) else None
        if (caller is None or caller.how == "local") and access.hidden_proxy(request.scope):
            return _told(request, 403, _PROXY[0], _PROXY[1])
        wait_s = self._rates.wait_s(_name(caller)) if caller else self._strangers.wait_s(network)
        if wait_s:
            return _too_many(request, wait_s)
        if caller is not None or path.startswith(OPEN) or self._is_public_badge(request):
            return None
        if _wants_page(request) and request.method == "GET":
            root = request.scope["root_path"]
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{root}/login?next={quote(there)}", 303)
        response = problem(
            401, "who asks?", "give a token: Authorization: Bearer bht_...; its owner makes one: bench token make"
        )
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _foreign(self, request: Request, caller: Caller | None) -> Response | None:
        """Return the refusal of a request that a page of another site sends with the rights of the browser's user.

        A link from another site still opens a page. Every other read that a foreign page can cause without a click is
        refused: the browser would not show the result to that page, but the server would do the work.
        """
        site = request.headers.get("sec-fetch-site", "none")
        if caller is None or caller.how == "token" or request.method not in _SAFE or site in ("same-origin", "none"):
            return None
        if self._is_public_badge(request):
            return None
        opened = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
        if opened == ("navigate", "document") and "sec-purpose" not in request.headers and _wants_page(request):
            return None
        return _told(request, 403, "another site can't read here", "open the address itself, not from a page elsewhere")

    def _is_public_badge(self, request: Request) -> bool:
        path = request.url.path.removeprefix(request.scope["root_path"])
        return path.startswith(BADGES) and self._access.settings.public_badges

    def _forged(self, request: Request, caller: Caller | None, body: bytes) -> Response | None:
        """Return the refusal of a write that another site made a browser send. Browsers never send a token or signature
        automatically, so requests that carry one pass."""
        path = request.url.path.removeprefix(request.scope["root_path"])
        if path.startswith(SIGNED) or (caller is not None and caller.how == "token"):
            return None
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        ours = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        if site not in (None, "same-origin", "none") or origin not in (None, ours):
            return _told(request, 403, "another site can't write here")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == FORM:
            given = parse_qs(body.decode("utf-8", "replace")).get(FORM_TOKEN, [""])[0]
            if _same(given, self._access.form_token(caller)):
                return None
            return _told(request, 403, "this form is of another session", "go back, reload the page, and send it again")
        if kind != "application/json":
            return _told(request, 415, "what is written is sent as JSON", "-H 'Content-Type: application/json'")
        return None

    async def _in_time(
        self, request: Request, receive: Receive, send: Send, disconnection: Coroutine[Any, Any, None]
    ) -> None:
        """Answer 503 if no answer begins in time. After that, and after a disconnect of the client, a read ends at its
        next query or cancellation check; a write is completed."""
        begun, late, patience = asyncio.Event(), False, Deadline()

        async def sending(message: Message) -> None:
            begun.set()
            if not late:
                await send(message)

        answering = asyncio.ensure_future(self._app(request.scope, receive, sending))
        waiting, gone = asyncio.ensure_future(begun.wait()), asyncio.ensure_future(disconnection)
        try:
            await asyncio.wait(
                (answering, waiting, gone), timeout=self._access.settings.max_time_s, return_when="FIRST_COMPLETED"
            )
            if not begun.is_set() and not answering.done():
                late = True
                patience.end()
            if late and not gone.done():
                seconds = self._access.settings.max_time_s
                response = _told(request, 503, f"no answer within {seconds:g} s", "the owner's limit is --max-time")
                response.headers["Retry-After"] = str(math.ceil(seconds))
                await response(request.scope, receive, send)
            await answering
        except asyncio.CancelledError:
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await answering
            raise
        finally:
            waiting.cancel()
            gone.cancel()


async def _disconnection(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


_PROXY = (
    "a proxy asks for somebody else, and this server was not told of one",
    "start it with --trusted-proxy ADDRESS, or with --login for tokens",
)


def local_path(text: str) -> str:
    """Return the path of this server that a form may lead to; the front page for other addresses. Browsers read a
    backslash as a slash."""
    parts = urlsplit(text)
    outside = parts.scheme or parts.netloc or not text.startswith("/") or text.startswith(("//", "/\\"))
    return "/" if outside or not text.isprintable() or "\\" in text else text


def _name(caller: Caller) -> str:
    """Return the key under which requests and connections of a known client are counted."""
    return f"{caller.how} {caller.name}"


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _wants_page(request: Request) -> bool:
    path = request.url.path.removeprefix(request.scope["root_path"])
    return not path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def _told(request: Request, status: int, title: str, hint: str = "") -> Response:
    if _wants_page(request):
        return written(request, trouble("That is refused", title, hint, status))
    return problem(status, title, hint)


def _too_many(request: Request, wait_s: float) -> Response:
    response = _told(request, 429, "too many requests", f"wait {wait_s:.1f} s")
    response.headers["Retry-After"] = str(int(wait_s) + 1)
    return response


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
