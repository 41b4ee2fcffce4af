"""Authentication by a token, by a session of a token, by the headers of a trusted proxy, or from this machine."""

import hashlib
import hmac
import ipaddress
import logging
import os
import socket
from dataclasses import dataclass
from typing import Literal

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from benchhouse.api.access import Token, Tokens
from benchhouse.api.workspace import Workspace
from benchhouse.processes.tcp_peer import account_of_peer
from benchhouse.schema.roles import ROLES, Role, may
from benchhouse.serve.settings import Settings, is_loopback, sub_path
from benchhouse.serve.state import ServerDatabase

COOKIE = "bench_session"
LOG = logging.getLogger("benchhouse.serve")
_FORWARDED = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-user", "forwarded", "x-real-ip")
_LONGEST_NAME = 200
_MOST_PROXIES = 16  # in a chain


@dataclass(frozen=True)
class Caller:
    """An authenticated caller and their role."""

    name: str
    role: Role
    how: Literal["local", "token", "session", "proxy", "stdio"]
    session: str = ""
    """The session to which forms are bound; empty if there is none."""

    def may(self, needed: Role) -> bool:
        return may(self.role, needed)


def caller_of(request: Request) -> Caller:
    """Return the caller of a request that the guard let through."""
    caller: Caller = request.scope["caller"]
    return caller


class Authenticator:
    """Identifies callers by the settings, the tokens, and the sessions of a workspace."""

    def __init__(self, workspace: Workspace, settings: Settings, state: ServerDatabase) -> None:
        self.settings, self._state = settings, state
        self._tokens = Tokens(workspace)
        own = {socket.gethostname().lower()} if not settings.is_loopback else set()
        self._names = {"localhost", *(name.lower() for name in settings.names), *own}

    def place(self, scope: Scope) -> Scope:
        """Return the scope as the client sees the server, with the address of the client as `address`.

        A trusted proxy states host, scheme, sub-path, and client address in headers; headers of other senders are
        ignored. Raise ValueError if the sub-path is not a path.
        """
        headers, settings = Headers(scope=scope), self.settings
        scheme, host, prefix = scope["scheme"], headers.get("host", ""), settings.root_path
        if self.is_proxy(scope):
            scheme = "https" if headers.get("x-forwarded-proto", scheme) == "https" else "http"
            host = headers.get("x-forwarded-host", host)
            prefix = sub_path(headers["x-forwarded-prefix"]) if "x-forwarded-prefix" in headers else prefix
        path = scope["path"]
        if prefix and path != prefix and not path.startswith(f"{prefix}/"):
            path = prefix + path
        raw = [(name, value) for name, value in scope["headers"] if name != b"host"]
        return {
            **scope,
            "scheme": scheme,
            "path": path,
            "root_path": prefix,
            "address": self._client_address(scope),
            "headers": [(b"host", host.encode("latin-1", "replace")), *raw],
        }

    def is_proxy(self, scope: Scope) -> bool:
        """Return whether the other end of the connection is a trusted proxy."""
        return self.settings.is_proxy(_peer(scope))

    def _client_address(self, scope: Scope) -> str:
        """Return the nearest address that is not a trusted proxy's. Each proxy appends the address that connected to it
        to X-Forwarded-For, so entries further left come from the client, which can forge them."""
        address = _peer(scope)
        entries = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).rsplit(",", _MOST_PROXIES)[-_MOST_PROXIES:]
        while entries and self.settings.is_proxy(address):
            stated = _without_port(entries.pop().strip())
            if stated is None:
                break
            address = stated
        return address

    def knows_host(self, host: str) -> bool:
        """Return whether a Host header names this server. In a DNS rebinding attack, a foreign page whose name points
        at this machine sends that name; addresses are always allowed, because they cannot be redirected."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        name = name.lower().rstrip(".")
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def hidden_proxy(self, scope: Scope) -> bool:
        """Return whether a proxy that is not in the settings forwards the request of an unknown client."""
        headers = Headers(scope=scope)
        return self.settings.without_login and any(name in headers for name in _FORWARDED)

    def caller(self, scope: Scope) -> Caller | None:
        """Return the caller; None if the caller is unknown. The reason is only in the owner's log."""
        headers, request = Headers(scope=scope), Request(scope)
        if given := headers.get("authorization"):
            scheme, _, secret = given.partition(" ")
            token = self.token(secret.strip(), scope) if scheme.lower() == "bearer" else None
            return Caller(token.name, token.scope, "token") if token else None
        if self.is_proxy(scope) and self.settings.user_header.lower() in headers:
            return self._named_by_proxy(headers)
        if cookie := request.cookies.get(COOKIE):
            return self._of_session(cookie, scope)
        if self.settings.without_login and is_loopback(_peer(scope)) and self._is_own_account(scope):
            return Caller("local", self.settings.allow, "local")
        return None

    def _is_own_account(self, scope: Scope) -> bool:
        """Return whether the client runs as the account of this server, or its account does not matter."""
        if self.settings.login is False:
            return True
        return account_of_peer(scope["client"], scope["server"]) == os.geteuid()

    def token(self, secret: str, scope: Scope) -> Token | None:
        """Return the token with this secret; None if it is unknown or no longer valid."""
        token = self._tokens.find(secret)
        if token is not None and token.state == "good":
            return token
        told = f"{token.state} token {token.id} of {token.name}" if token else "a token that is none"
        LOG.warning("refused %s from %s", told, scope["address"])
        return None

    def begin_session(self, token: Token) -> str:
        """Return the cookie of a new session, which ends with its token."""
        return self._state.begin_session(token.id, token.expires)

    def end_session(self, cookie: str) -> None:
        self._state.end_session(cookie)

    def form_token(self, caller: Caller | None) -> str:
        """Return the token in the forms of a caller, which keeps other sites from sending them."""
        bound = f"{caller.how}\0{caller.name}\0{caller.session}" if caller else ""
        return hmac.new(self._state.secret, bound.encode(), hashlib.sha256).hexdigest()

    def _named_by_proxy(self, headers: Headers) -> Caller | None:
        names = headers.getlist(self.settings.user_header)
        name = names[0].strip() if len(names) == 1 else ""  # two headers: one of them is not the proxy's
        # `@` and `*` begin what a grant names: a group, and everybody.
        if not name or len(name) > _LONGEST_NAME or not name.isprintable() or name[0] in "@*":
            LOG.warning("refused what a proxy says: %d users in one request", len(names))
            return None
        groups = [item.strip() for line in headers.getlist(self.settings.groups_header) for item in line.split(",")]
        grants = self.settings.grants
        roles = [grants[who] for who in ("*", name, *(f"@{group}" for group in groups)) if who in grants]
        return Caller(name, max(roles, key=ROLES.index), "proxy")

    def _of_session(self, cookie: str, scope: Scope) -> Caller | None:
        token_id = self._state.token_of(cookie)
        token = next((item for item in self._tokens.list() if item.id == token_id), None) if token_id else None
        if token is None or token.state != "good":
            LOG.warning("refused a session that has ended, from %s", scope["address"])
            return None
        return Caller(token.name, token.scope, "session", self._state.digest(cookie))


def _peer(scope: Scope) -> str:
    """Return the address of the other end of the connection."""
    return str((scope["client"] or ("",))[0])


def _without_port(entry: str) -> str | None:
    """Return the address in an entry of X-Forwarded-For, to which some proxies append a port; None if it has no
    address."""
    bracketed = entry[1:].partition("]")[0] if entry.startswith("[") else entry
    for text in (bracketed, entry.rpartition(":")[0]):
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            continue
    return None
