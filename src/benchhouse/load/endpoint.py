"""Endpoints: addresses of connections, resolved before any time is measured; and statistics per endpoint of several."""

import socket
import ssl
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any
from urllib.parse import urlsplit

from benchhouse.schema.errors import BenchError
from benchhouse.schema.secrets import split_userinfo

_PROBE_S = 2.0


@dataclass(frozen=True)
class EndpointServers:
    """The servers for the connections of an HTTP driver; for a driver with its own connections, only their
    addresses."""

    urls: tuple[str, ...] = ()
    """Several servers over which the connections are spread; empty: the driver's own."""
    verify_tls: bool = True

    def endpoints(self, own: str) -> "list[HttpEndpoint]":
        """Return the endpoints. Raises BenchError if an address is invalid or can't be resolved."""
        return [HttpEndpoint(url, verify=self.verify_tls) for url in self.urls or (own,)]


class HttpEndpoint:
    """An http:// or https:// address, resolved once. If the host has several addresses, the first that answers is
    used."""

    def __init__(self, url: str, *, verify: bool = True) -> None:
        url, _ = split_userinfo(url)
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise BenchError(f"{url!r} is not an address: {error}", "write target.url: http://host:port") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BenchError(f"{url!r} is not an http:// or https:// address", "write target.url: http://host:port")
        self.url, self.host = url, parts.hostname
        try:
            resolved = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise BenchError(f"the host {self.host!r} can't be resolved: {error}", "check target.url") from error
        self.family, self.address = _first_that_answers([(item[0], item[4]) for item in resolved])
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self.tls = ssl.create_default_context()
            if not verify:
                self.tls.check_hostname = False
                self.tls.verify_mode = ssl.CERT_NONE


def _first_that_answers(addresses: list[tuple[int, tuple[Any, ...]]]) -> tuple[int, tuple[Any, ...]]:
    """Return the first address that answers: `localhost` mostly has two, and many servers listen on only one."""
    for family, address in addresses if len(addresses) > 1 else ():
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_S)
            if probe.connect_ex(address) == 0:
                return family, address
    return addresses[0]


@dataclass
class EndpointStats:
    """The results of the load at one of several endpoints, including warm-up and cool-down."""

    connections: int = 0
    refused: int = 0  # connections that could not be opened
    good: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    why: str = ""  # reason of the first connection that could not be opened
    refused_ns: int = 0  # time of the last one
    good_ns: int = 0

    @property
    def gone(self) -> bool:
        """Whether the last result of this endpoint was a failed connection."""
        return self.refused_ns > self.good_ns

    def refuse(self, why: str) -> None:
        self.refused += 1
        self.refused_ns = monotonic_ns()
        self.why = self.why or why

    def note(self, error: str | None, ended_ns: int) -> None:
        """Count how a request ended."""
        if error is None:
            self.good += 1
            self.good_ns = ended_ns
        else:
            self.errors[error] += 1

    def facts(self) -> dict[str, Any]:
        counts = {"connections": self.connections, "refused": self.refused, "good": self.good}
        return counts | {"errors": dict(self.errors), "gone": self.gone}

    def merge(self, other: "EndpointStats") -> None:
        self.connections += other.connections
        self.refused += other.refused
        self.good += other.good
        self.errors.update(other.errors)
        self.why = self.why or other.why
        self.refused_ns = max(self.refused_ns, other.refused_ns)
        self.good_ns = max(self.good_ns, other.good_ns)
