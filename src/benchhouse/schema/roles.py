"""Roles of users on a server; each includes those before it."""

from typing import Literal, get_args

Role = Literal["read", "run", "approve", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
TOKEN_PREFIX = "bht_"  # noqa: S105 - by which scanners of secrets know one


def may(role: Role, needed: Role) -> bool:
    """Return whether a role includes another: read < run < approve < admin."""
    return ROLES.index(role) >= ROLES.index(needed)
