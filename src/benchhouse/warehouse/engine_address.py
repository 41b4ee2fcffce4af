"""From the address of an engine to the engine: PostgreSQL, ClickHouse, or the lake of another workspace."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.engine import Engine

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+]*):", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


def open_engine(address: str, environ: Mapping[str, str] = os.environ) -> Engine:
    """The engine at an address: `postgresql://...`, `clickhouse:FOLDER`, or the folder of another workspace.

    `$NAME` as a whole address, or as its password, is the value of that variable.
    """
    variable = _VARIABLE.fullmatch(address)
    given = _value(variable, environ) if variable else address
    scheme = match["scheme"].lower() if (match := _SCHEME.match(given)) else ""
    if scheme in ("postgresql", "postgres"):
        from benchhouse.warehouse.engine_postgres import PostgresEngine  # brings its driver

        return PostgresEngine(_with_password(given, environ, literal=variable is not None))
    if scheme == "clickhouse":
        from benchhouse.warehouse.engine_clickhouse import ClickHouseEngine

        folder = given.partition(":")[2]
        if not folder or folder.startswith("//"):
            reason = "ClickHouse is kept in a folder here (chdb), not asked over a network"
            raise BenchError(reason, "clickhouse:FOLDER, as clickhouse:ch")
        return ClickHouseEngine(Path(folder).expanduser().resolve())
    if scheme:
        raise BenchError(
            f"{scheme}: no engine of that kind",
            "There are: postgresql://user@host/database, clickhouse:FOLDER, and the folder of another workspace.",
        )
    from benchhouse.warehouse.engine_lake import LakeEngine

    root = Path(given).expanduser()
    if not root.is_dir():
        raise BenchError(f"{given}: no such folder", f"A new workspace may be empty: mkdir {given}")
    return LakeEngine(WorkspaceFolder(root.resolve()))


def _with_password(address: str, environ: Mapping[str, str], *, literal: bool) -> str:
    """The address with its password in place of the variable that names it."""
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError as error:
        raise BenchError("not a valid address", "postgresql://user@host/database") from error
    if not password or literal:
        return address
    match = _VARIABLE.fullmatch(password)
    if match is None:
        raise BenchError(
            "a password in the address is visible to everyone on this machine, and stays in the history of the shell",
            "Name a variable that has it, 'postgresql://user:$NAME@host/database', or set PGPASSWORD.",
        )
    host = parts.netloc.rpartition("@")[2]
    safe = f"{quote(parts.username or '', safe='%')}:{quote(_value(match, environ), safe='')}@{host}"
    return urlunsplit(parts._replace(netloc=safe))


def _value(match: "re.Match[str]", environ: Mapping[str, str]) -> str:
    name = match["braced"] or match["bare"]
    if not environ.get(name):
        raise BenchError(f"the variable {name} is not set", f"export {name}=...")
    return environ[name]
