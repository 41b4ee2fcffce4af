"""DuckDB in memory that can read listed files and write nothing, and its values as data for JSON.

Imports only DuckDB and a few light modules, so that the process that answers one query starts fast.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from benchhouse.schema.errors import BenchError
from benchhouse.schema.json_text import finite

if TYPE_CHECKING:
    import duckdb

ONE_SELECT = "only one SELECT at a time is answered: the warehouse is read, never written, by SQL"

# DuckDB makes the paths that SQL may read absolute, and these show them; `query` runs SQL that is not in the text.
_SHOWS_PATHS = re.compile(
    r"(?:duckdb|pg|current)_settings?|allowed_(?:paths|directories)|json_execute_serialized_sql"
    r"|\bquery(?:_table)?\b[^\w(]*(?:\(|/\*|--)",
    re.IGNORECASE,
)


def open_engine(
    views: Mapping[str, str], allowed: str, settings: Sequence[str] = (), threads: int | None = None
) -> "duckdb.DuckDBPyConnection":
    """Return an engine with these views. SQL can read what is `allowed` and change none of the settings.

    The number of threads is fixed at the start: by default one per core, and each has a stack.
    """
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": threads} if threads else {})
    if settings:
        connection.execute("; ".join(f"SET {setting}" for setting in settings))
    for name, select in views.items():
        connection.execute(f'CREATE VIEW "{name}" AS {select}')
    lock(connection, allowed)
    return connection


def lock(connection: "duckdb.DuckDBPyConnection", allowed: str) -> None:
    """Permanently let SQL read what is `allowed` and nothing else."""
    settings = (
        allowed,
        "parquet_metadata_cache = true",
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "allow_persistent_secrets = false",
        "enable_external_access = false",
        "lock_configuration = true",
    )
    connection.execute("; ".join(f"SET {setting}" for setting in settings))


def temporary_files(folder: str, most_bytes: int) -> tuple[str, ...]:
    """Return the settings of an engine with temporary files in this folder, which the engine creates when needed."""
    escaped = folder.replace("'", "''")
    return f"temp_directory = '{escaped}'", f"max_temp_directory_size = '{most_bytes >> 20} MiB'"


def listed(texts: Sequence[str]) -> str:
    """Return a list of texts in SQL."""
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


def one_select(connection: "duckdb.DuckDBPyConnection", sql: str) -> "duckdb.Statement":
    """Return the statement. Raise BenchError if it is not exactly one SELECT, or if it would show the settings."""
    import duckdb

    if found := _SHOWS_PATHS.search(sql):
        raise BenchError(f"SQL can't use {found.group().rstrip('(/*- ')}: it would show paths of the machine")
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise BenchError(ONE_SELECT)
    return statements[0]


def json_row(columns: Sequence[str], row: Sequence[Any]) -> str:
    """Return a row as a JSON object on one line, with null for NaN and infinity."""
    value: Any = dict(zip(columns, row, strict=True))
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=as_plain)
    except (TypeError, ValueError):  # a map key that is not text, or a number that JSON cannot represent
        return json.dumps(finite(as_plain(value)), ensure_ascii=False)


def as_plain(value: Any) -> Any:
    """Return a value that can be written as JSON."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, UUID) or not isinstance(value, str | int | float | bool | None):
        return str(value)
    return value
