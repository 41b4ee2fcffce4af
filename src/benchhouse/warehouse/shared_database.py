"""One DuckDB for all queries of this program to a workspace, because starting one costs three times as much as a query.

It sees the folders of the tables and nothing else of this machine, and each open warehouse has its own views in it. SQL
of users never runs here: it runs in an engine that sees only the listed files.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from benchhouse.processes.owned_names import sweep_temporaries, temporary_name
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import QueryInput
from benchhouse.warehouse.catalog import UNFINISHED
from benchhouse.warehouse.locked_engine import listed, open_engine, temporary_files
from benchhouse.warehouse.table import quoted
from benchhouse.warehouse.tables import EVIDENCE_TABLES, TABLES

if TYPE_CHECKING:
    import duckdb

_MOST_SPILLED = 16 << 30
_serial = itertools.count(1)
_last: tuple[tuple[int, str], "duckdb.DuckDBPyConnection"] | None = None
_starting = threading.Lock()


class SharedViews:
    """The tables of one open warehouse in the shared engine. Close it."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self._root = os.path.realpath(workspace.warehouse)
        self._connection = _engine(self._root, workspace).cursor()
        self._shown: dict[str, tuple[list[str], bool]] = {}

    def show(self, tables: Iterable[str], inputs: Sequence[QueryInput], older: bool) -> "duckdb.DuckDBPyConnection":
        """Return the engine after replacing the views of these tables by these files; tables without files have no
        rows."""
        files: dict[str, list[str]] = {table: [] for table in tables}
        for file in inputs:
            files.setdefault(file.table, []).append(f"{self._root}/{file.file}")
        for table, paths in files.items():
            if self._shown.get(table) != (paths, older):
                select = TABLES[table].sql_over(listed(paths), older=older) if paths else TABLES[table].empty_sql()
                self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(table)} AS {select}")
                self._shown[table] = paths, older
        return self._connection

    def close(self) -> None:
        self._connection.close()


def is_in_lake(file: QueryInput) -> bool:
    """Return whether the file is in the lake's folder of its table."""
    return file.table in EVIDENCE_TABLES and os.path.dirname(file.file) == file.table  # noqa: PTH120 - called often


def own_temporary_files(workspace: WorkspaceFolder) -> tuple[str, ...]:
    """Return the settings of an engine of this process, after removing the temporary files of killed processes."""
    with contextlib.suppress(OSError):  # a read-only workspace: then nothing can be spilled
        (workspace.warehouse / UNFINISHED).mkdir(parents=True, exist_ok=True)
        sweep_temporaries(workspace.warehouse / UNFINISHED)
    folder = workspace.warehouse / UNFINISHED / temporary_name(f"engine-{next(_serial)}")
    return temporary_files(os.path.realpath(folder), _MOST_SPILLED)


def _engine(root: str, workspace: WorkspaceFolder) -> "duckdb.DuckDBPyConnection":
    """Return the engine. The last one is kept, because the next warehouse is usually of the same workspace.

    An engine of the parent process cannot be used after a fork. If another one replaces it, open cursors keep the old
    one.
    """
    global _last
    key = os.getpid(), root
    with _starting:
        if _last is None or _last[0] != key:
            folders = listed([f"{root}/{table}/" for table in EVIDENCE_TABLES])
            _last = key, open_engine({}, f"allowed_directories = {folders}", own_temporary_files(workspace))
        return _last[1]
