"""The open connections of the server: how many each client may hold, and which are closed to make room for new ones.

A client is unknown until a request identifies its sender. Connections of unknown clients never use the room of known
ones, and no address or client can use the room of all others.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from benchhouse.serve.settings import Settings

HEAD_S = 20.0
"""The seconds in which a connection has to send the head of a request, from its start or from the previous answer."""
Peer = tuple[Any, ...]
"""The address and port of the other end."""


@dataclass(eq=False)
class AcceptedConnection:
    """A connection that is open."""

    transport: asyncio.Transport
    network: str
    """The network of the client, as `network_of` returns it; empty for a trusted proxy, which connects for many
    clients."""
    client: str = ""
    """The known client that sent the last request; empty if it was unknown."""
    answering: bool = False
    timer: asyncio.TimerHandle | None = None

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Connections:
    """All connections of a server, in the order in which they were opened."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        most = settings.max_connections
        self._most_unknown, self._most_of_network, self._most_of_client = most // 4, most // 8, most // 4
        self._most_known = most - self._most_unknown
        self._open: dict[Peer, AcceptedConnection] = {}

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class for uvicorn, which reports each connection to this object.

        It is always based on h11, which limits heads to 64 KiB. The httptools protocol, which uvicorn prefers if it is
        installed, has no limit.
        """
        connections = self

        class CountedProtocol(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.peer_key = tuple((transport.get_extra_info("peername") or ())[:2])
                connections.opened(self.peer_key, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.closed(self.peer_key)
                super().connection_lost(exc)

        return CountedProtocol

    def opened(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Count a new connection. If its address or all unknown clients hold too many, the oldest of them is closed."""
        address = str(peer[0]) if peer else ""
        network = "" if self._settings.is_proxy(address) else network_of(address)
        new = self._open[peer] = AcceptedConnection(transport, network)
        self.answered(peer)
        self._limit_unknown(new)

    def closed(self, peer: Peer) -> None:
        if connection := self._open.pop(peer, None):
            connection.stop_waiting()

    def requested(self, peer: Peer) -> None:
        """Record that the head of a request has arrived."""
        if connection := self._open.get(peer):
            connection.answering = True
            connection.stop_waiting()

    def answered(self, peer: Peer) -> None:
        """Wait for the next request, and close the connection if it does not arrive in time."""
        if (connection := self._open.get(peer)) and connection.timer is None:
            connection.answering = False
            connection.timer = asyncio.get_running_loop().call_later(HEAD_S, connection.transport.abort)

    def hold(self, peer: Peer, client: str) -> bool:
        """Count a connection for a known client, or with an empty name for an unknown one.

        Other connections are closed to make room: idle ones of the same client, or the oldest of the client that holds
        the most. Return False if the client holds the maximum, and all of them wait for an answer.
        """
        connection = self._open.get(peer)
        if connection is None or connection.client == client:
            return True
        connection.client = client
        if not client:
            self._limit_unknown(connection)
            return True
        known = [other for other in self._open.values() if other.client]
        held = [other for other in known if other.client == client]
        if len(held) > self._most_of_client:
            idle = [other for other in held if not other.answering]
            if not idle:
                connection.client = ""
                return False
            self._close(idle[0])
        elif len(known) > self._most_known:
            most_held = Counter(other.client for other in known).most_common(1)[0][0]
            self._close(_oldest([other for other in known if other.client == most_held], connection))
        return True

    def _limit_unknown(self, new: AcceptedConnection) -> None:
        unknown = [other for other in self._open.values() if not other.client]
        from_there = [other for other in unknown if other.network == new.network]
        if new.network and len(from_there) > self._most_of_network:
            self._close(_oldest(from_there, new))
        elif len(unknown) > self._most_unknown:
            most_held = Counter(other.network for other in unknown).most_common(1)[0][0]
            self._close(_oldest([other for other in unknown if other.network == most_held], new))

    def _close(self, connection: AcceptedConnection) -> None:
        connection.stop_waiting()
        self._open = {peer: other for peer, other in self._open.items() if other is not connection}
        connection.transport.abort()


def _oldest(connections: Iterable[AcceptedConnection], new: AcceptedConnection) -> AcceptedConnection:
    """Return the oldest idle connection, or the oldest if none is idle; the new one only if there is no other."""
    return min(connections, key=lambda connection: (connection is new, connection.answering))


def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because one
    client usually has all of it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
