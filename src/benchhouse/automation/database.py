"""A SQLite file of automation: transactions are exclusive, and are synced at their end."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchhouse.schema.errors import BenchError, Exit

Rows = list[tuple[Any, ...]]


class AutomationDatabase(Protocol):
    """One connection, used by one thread."""

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows: ...
    def alone(self) -> Any: ...
    def close(self) -> None: ...


class Sqlite:
    """A database that is synced at every transaction and never blocks readers. Errors name `what` it holds."""

    def __init__(self, path: Path, tables: Sequence[str], what: str) -> None:
        self._path, self._what = path, what
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            if self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        if self.ask("SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL")[0][0] < len(tables):
            with self.alone():
                for statement in tables:
                    self.ask(statement)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        with self._explained():
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run a transaction, which is rolled back if anything is raised."""
        self.ask("BEGIN IMMEDIATE")
        try:
            yield
            self.ask("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise BenchError(
                f"{self._what} in {self._path} can't be used: {error}",
                "make room, or make it writable; nothing was begun that is not written down",
                Exit.TRIAL_FAILED,
            ) from error
