"""Who may do what on a server: roles, each of which holds those before it."""

from typing import Literal, get_args

Role = Literal["read", "run", "approve", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
TOKEN_PREFIX = "bht_"  # noqa: S105 - by which scanners of secrets know one


def may(role: Role, needed: Role) -> bool:
    """Whether a role holds another: read < run < approve < admin."""
    return ROLES.index(role) >= ROLES.index(needed)
