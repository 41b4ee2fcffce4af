"""One DuckDB for all questions of this program to a workspace: to start one costs three times what a question does.

It sees the folders of the tables and nothing else of this machine, and each open warehouse has views of its own in it.
SQL that a user wrote never gets here: it is answered by an engine that sees the listed files alone.
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
    """The tables as one open warehouse sees them, in the engine that all of them share. Close it."""

    def __init__(self, workspace: WorkspaceFolder) -> None:
        self._root = os.path.realpath(workspace.warehouse)
        self._connection = _engine(self._root, workspace).cursor()
        self._shown: dict[str, tuple[list[str], bool]] = {}

    def show(self, tables: Iterable[str], inputs: Sequence[QueryInput], older: bool) -> "duckdb.DuckDBPyConnection":
        """The engine, in which each of these tables is now made of these files; those without one have no rows."""
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
    """Whether the file stands where the lake has those of its table."""
    return file.table in EVIDENCE_TABLES and os.path.dirname(file.file) == file.table  # noqa: PTH120 - called often


def own_temporary_files(workspace: WorkspaceFolder) -> tuple[str, ...]:
    """Return the settings of an engine of this process. What killed processes left is removed first."""
    with contextlib.suppress(OSError):  # a workspace that is only read: then nothing can be spilled
        (workspace.warehouse / UNFINISHED).mkdir(parents=True, exist_ok=True)
        sweep_temporaries(workspace.warehouse / UNFINISHED)
    folder = workspace.warehouse / UNFINISHED / temporary_name(f"engine-{next(_serial)}")
    return temporary_files(os.path.realpath(folder), _MOST_SPILLED)


def _engine(root: str, workspace: WorkspaceFolder) -> "duckdb.DuckDBPyConnection":
    """The last one is kept, for the next warehouse that is opened is most often of the same workspace.

    One that a parent process started is of no use after a fork. Where another is begun, open cursors keep the old one.
    """
    global _last
    key = os.getpid(), root
    with _starting:
        if _last is None or _last[0] != key:
            folders = listed([f"{root}/{table}/" for table in EVIDENCE_TABLES])
            _last = key, open_engine({}, f"allowed_directories = {folders}", own_temporary_files(workspace))
        return _last[1]
