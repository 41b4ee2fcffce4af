"""What the server's owner decides: where it listens, who is believed, how much is taken from one caller."""

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
    """Host names by which it is reached, beside those of this machine."""
    root_path: str = ""
    """The sub-path under which a proxy shows it."""
    login: bool | None = None
    """On the loopback device: whether each client needs a token (True) or none does (False). By default, processes of
    the account that the server runs as need none."""
    allow: Role = "read"
    """What may be done without a login, on the loopback device."""
    proxies: tuple[Network, ...] = ()
    """Addresses of proxies whose headers are believed."""
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    grants: Mapping[str, Role] = field(default_factory=lambda: {"*": "read"})
    """Roles of those whom a proxy names: by user, `@group`, or `*` for all."""
    public_badges: bool = False
    """Whether badges are shown to anybody, also on pages of others."""
    follow_s: float | None = None
    """Seconds between two looks at the team's store of workspace.yaml; None: it is not followed."""
    budget: Budget | None = None
    """What each run may use that is started by somebody who may not approve."""
    query_limits: QueryLimits = field(default_factory=QueryLimits)
    """What a query over HTTP or MCP may cost."""
    max_body: int = 2 << 20
    """Bytes of a request."""
    max_connections: int = 512
    """Open connections in all."""
    max_time_s: float = 60.0
    """Seconds until an answer begins."""
    rate: float = 100.0
    """Requests a second of one caller, on average; four seconds' worth may come at once."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def without_login(self) -> bool:
        """Whether clients without a token, on this machine, are answered."""
        return self.is_loopback and not self.login and not self.proxies

    def is_proxy(self, address: str) -> bool:
        """Whether this is the address of a trusted proxy."""
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
    """`ada=run`, `@perf=approve`, `*=read`; without the latter, everybody whom the proxy lets through may read."""
    chosen: dict[str, Role] = {"*": "read"}
    for who, role in pairs.items():
        known = next((item for item in ROLES if item == role), None)
        if known is None:
            raise BenchError(f"--grant {who}={role}: there is no role {role}", f"there are {', '.join(ROLES)}")
        chosen[who] = known
    return chosen


def sub_path(text: str) -> str:
    """Without the slash at its end; raises ValueError for what is no plain path."""
    path = text.rstrip("/")
    parts = path.split("/")
    plain = all(part and part not in (".", "..") and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
                for part in parts[1:])  # fmt: skip
    if path and (parts[0] or not plain or not path.isascii()):
        raise ValueError(f"{text[:80]!r} is not a path such as /bench")
    return path
