"""The settings of the server's owner: the address to listen on, who has access, and the limits per caller."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchhouse.schema.errors import BenchError
from benchhouse.schema.query import QueryLimits
from benchhouse.schema.resources import Budget
from benchhouse.schema.roles import ROLES, Role

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Settings:
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    """The host names of the server, in addition to those of this machine."""
    root_path: str = ""
    """The sub-path under which a proxy serves it."""
    login: bool | None = None
    """On the loopback device: whether every client needs a token (True) or none does (False). By default, processes of
    the account that runs the server need none."""
    allow: Role = "read"
    """The role of clients without a login, on the loopback device."""
    proxies: tuple[Network, ...] = ()
    """The addresses of proxies whose headers are trusted."""
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    grants: Mapping[str, Role] = field(default_factory=lambda: {"*": "read"})
    """The roles of users that a proxy names: by user, `@group`, or `*` for all."""
    public_badges: bool = False
    """Whether badges are public, so that pages of other sites can show them too."""
    follow_s: float | None = None
    """The seconds between two reads of the team's store of workspace.yaml; None if the server does not follow it."""
    budget: Budget | None = None
    """The budget of each run started by a caller who may not approve."""
    query_limits: QueryLimits = field(default_factory=QueryLimits)
    """The limits of a query over HTTP or MCP."""
    max_body: int = 2 << 20
    """The maximum size of a request body in bytes."""
    max_connections: int = 512
    """The maximum number of open connections in all."""
    max_time_s: float = 60.0
    """The maximum number of seconds until an answer begins."""
    rate: float = 100.0
    """The average number of requests per second of one caller; the requests of four seconds may come at once."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def without_login(self) -> bool:
        """Whether clients on this machine are served without a token."""
        return self.is_loopback and not self.login and not self.proxies

    def is_proxy(self, address: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self.proxies)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BenchError(f"--trusted-proxy {text}: {error}", "write an address, or a network as 10.0.0.0/24") from error


def grants(pairs: Mapping[str, str]) -> dict[str, Role]:
    """Parse grants such as `ada=run`, `@perf=approve`, and `*=read`. Without a grant for `*`, all users of the proxy
    may read."""
    chosen: dict[str, Role] = {"*": "read"}
    for who, role in pairs.items():
        known = next((item for item in ROLES if item == role), None)
        if known is None:
            raise BenchError(f"--grant {who}={role}: there is no role {role}", f"there are {', '.join(ROLES)}")
        chosen[who] = known
    return chosen


def sub_path(text: str) -> str:
    """Return the path without its trailing slash. Raise ValueError if it is not a plain path."""
    path = text.rstrip("/")
    parts = path.split("/")
    plain = all(part and part not in (".", "..") and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
                for part in parts[1:])  # fmt: skip
    if path and (parts[0] or not plain or not path.isascii()):
        raise ValueError(f"{text[:80]!r} is not a path such as /bench")
    return path
