"""The catalog: which Parquet file holds which run, with its digest. SQLite, many processes, no daemon."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchhouse.processes.durable import make_folders
from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.units import by_metric

UNFINISHED = ".unfinished"  # in the warehouse folder: files that are being written, and those of large queries
FILE_NAME = "catalog.sqlite"
BUSY_TIMEOUT_MS = 60_000
FILE_COLUMNS = "table_name, run_id, file, sha256, rows, trials, schema_version, started_min, started_max"

_MOST_INTACT = 100_000
_intact: dict[tuple[str, str], tuple[int, int, int, int, int]] = {}
"""Files that this process has hashed and found intact, by path and digest, with their status at that time."""


def _version_1(db: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE files (
             table_name TEXT, run_id TEXT, file TEXT NOT NULL, sha256 TEXT NOT NULL, rows INTEGER NOT NULL,
             trials INTEGER NOT NULL, schema_version INTEGER NOT NULL, started_min TEXT, started_max TEXT,
             PRIMARY KEY (table_name, run_id)) WITHOUT ROWID""",
        """CREATE TABLE runs (
             run_id TEXT PRIMARY KEY, scenario TEXT NOT NULL, started TEXT NOT NULL, ended TEXT NOT NULL,
             experiment TEXT NOT NULL, experiment_version TEXT NOT NULL, executor TEXT NOT NULL,
             trials INTEGER NOT NULL, succeeded INTEGER NOT NULL, failed INTEGER NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX runs_by_start ON runs (started, run_id)",
        "CREATE INDEX runs_by_scenario ON runs (scenario, started, run_id)",
        "CREATE TABLE trials (trial_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, folder TEXT NOT NULL) WITHOUT ROWID",
        "CREATE INDEX trials_by_run ON trials (run_id)",
        "CREATE INDEX files_by_name ON files (file)",
        "CREATE TABLE published (ref TEXT PRIMARY KEY, report TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE pinned (file TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE unfinished (what TEXT PRIMARY KEY) WITHOUT ROWID",
    ):
        db.execute(statement)


def _version_2(db: sqlite3.Connection) -> None:
    """Add the units of each run's metrics, so that metrics that cannot be averaged are known without opening a file."""
    db.execute(
        "CREATE TABLE units (run_id TEXT, metric TEXT, unit TEXT, PRIMARY KEY (run_id, metric, unit)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX units_by_metric ON units (metric, unit)")
    db.execute("CREATE INDEX files_by_run ON files (run_id)")
    db.execute("CREATE INDEX files_by_version ON files (schema_version, run_id)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_version_1, _version_2)
"""`MIGRATIONS[n]` takes a catalog from version n to n + 1; entries are only ever appended."""


class CatalogLost(Exception):  # noqa: N818 - always handled: the catalog is made again
    """The catalog is missing, damaged, or unfinished; the text says which."""


@dataclass(frozen=True)
class TableFile:
    """One Parquet file; `file` is relative to the warehouse folder."""

    table: str
    run_id: str
    file: str
    sha256: str
    rows: int
    trials: int
    schema_version: int
    started_min: str
    started_max: str


@dataclass(frozen=True)
class RunEntry:
    """The entry of a run in a list, readable without opening a Parquet file. Times are ISO 8601, UTC."""

    run_id: str
    scenario: str
    started: str
    ended: str
    experiment: str
    experiment_version: str
    executor: str
    trials: int
    succeeded: int
    failed: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "RunEntry":
        """Return the entry for a row of benchmark_run_fact."""
        times = {name: row[name].isoformat(timespec="milliseconds") + "+00:00" for name in ("started", "ended")}
        return cls(**{name: row[name] for name in cls.__dataclass_fields__} | times)


def read_only_address(path: Path) -> str:
    """Return the address for SQLite. If this process may not write, no process writes, so no journal is needed next to
    the file."""
    return f"{path.absolute().as_uri()}?mode=ro{'' if os.access(path.parent, os.W_OK) else '&immutable=1'}"


class TableCatalog:
    """An open catalog. Close it, or use it as a context manager."""

    def __init__(self, workspace: WorkspaceFolder, db: sqlite3.Connection) -> None:
        self.workspace, self._place = workspace, str(workspace.warehouse)
        self._db = db

    @classmethod
    def open(cls, workspace: WorkspaceFolder) -> "TableCatalog":
        """Open a finished catalog. Raise CatalogLost if there is none."""
        catalog = cls._connect(workspace, create=False)
        if catalog._first("SELECT 1 FROM unfinished", []):
            catalog.close()
            raise CatalogLost("the warehouse catalog was being made and was not finished")
        return catalog

    @classmethod
    def open_for_rebuild(cls, workspace: WorkspaceFolder) -> "TableCatalog":
        """Open the existing catalog; a missing or damaged one is replaced by an empty one, unfinished until
        `finish`."""
        try:
            make_folders(workspace.warehouse)
            with (workspace.warehouse / ".recovery.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time checks a catalog and replaces it
                try:
                    return cls._connect(workspace, create=False)
                except CatalogLost:
                    _put_aside(workspace.warehouse / FILE_NAME)
                    return cls._connect(workspace, create=True)
        except OSError as error:
            raise unwritable(workspace.warehouse, error) from error

    @classmethod
    def _connect(cls, workspace: WorkspaceFolder, *, create: bool) -> "TableCatalog":
        path = workspace.warehouse / FILE_NAME
        if not create and not path.is_file():
            raise CatalogLost("the warehouse has no catalog")
        writable = os.access(path.parent, os.W_OK)
        address = path.absolute().as_uri() if writable else read_only_address(path)
        try:
            db = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
        except sqlite3.OperationalError as error:
            raise _unusable(path, error) from error
        try:
            db.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise BenchError(
                    f"{path}: catalog version {version}, but this benchhouse knows versions up to {len(MIGRATIONS)}",
                    hint="Use the newer benchhouse that wrote it, or move it away: it is made again from evidence.",
                )
            if version == 0 and not create:
                raise CatalogLost("the warehouse catalog is empty")
            if version < len(MIGRATIONS):
                db.execute("PRAGMA journal_mode = WAL")
                _migrate(db)
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            db.close()
            raise _unusable(path, error) from error
        except sqlite3.DatabaseError as error:
            db.close()
            raise CatalogLost(f"the warehouse catalog is damaged ({error})") from error
        except (BenchError, CatalogLost):
            db.close()
            raise
        return cls(workspace, db)

    def __enter__(self) -> "TableCatalog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def finish(self) -> None:
        with self._writing():
            self._db.execute("DELETE FROM unfinished")

    # -- files and runs

    def files(self, tables: Iterable[str], runs: Iterable[str] | None = None) -> list[TableFile]:
        """Return the files of these tables, ordered by table and run; of all runs, or only of `runs`."""
        rows = []
        with self._reading():
            for table in tables:
                select = f"SELECT {FILE_COLUMNS} FROM files WHERE table_name = ?"  # noqa: S608 - no outside text
                if runs is None:
                    rows += self._db.execute(f"{select} ORDER BY run_id", [table]).fetchall()
                else:
                    for run in sorted(set(runs)):
                        rows += self._db.execute(f"{select} AND run_id = ?", [table, run]).fetchall()
        return [TableFile(*row) for row in rows]

    def files_of(self, run_id: str) -> list[TableFile]:
        """Return all files of a run, ordered by table."""
        with self._reading():
            rows = self._db.execute(f"SELECT {FILE_COLUMNS} FROM files WHERE run_id = ? ORDER BY table_name", [run_id])  # noqa: S608
            return [TableFile(*row) for row in rows]

    def digests(self, tables: Sequence[str]) -> dict[str, str]:
        """Return a text per run that identifies its files of these tables."""
        marks = ", ".join("?" * len(tables))
        sql = f"SELECT run_id, sha256 FROM files WHERE table_name IN ({marks}) ORDER BY run_id, table_name"  # noqa: S608
        known: dict[str, str] = {}
        with self._reading():
            for run_id, sha256 in self._db.execute(sql, tables):
                known[run_id] = f"{known[run_id]}+{sha256}" if run_id in known else sha256
        return known

    def older_runs(self, version: int, runs: Iterable[str] | None = None) -> list[str]:
        """Return runs with files of an older schema than `version`; of all runs, or only of `runs`."""
        # With this index; without the hint, SQLite reads all files in the order of their runs.
        sql = "SELECT DISTINCT run_id FROM files INDEXED BY files_by_version WHERE schema_version < ?"
        with self._reading():
            rows = self._db.execute(sql, [version]).fetchall()
        wanted = None if runs is None else set(runs)
        return sorted(run for (run,) in rows if wanted is None or run in wanted)

    def units(self, runs: Iterable[str] | None = None) -> dict[str, dict[str, str]]:
        """Return metrics with more than one unit in these runs (default: all), with the last run of each unit."""
        wanted = None if runs is None else set(runs)
        several = "SELECT metric FROM units GROUP BY metric HAVING count(DISTINCT unit) > 1"
        sql = f"SELECT metric, unit, run_id FROM units WHERE metric IN ({several}) ORDER BY run_id"  # noqa: S608
        with self._reading():
            known = by_metric(row for row in self._db.execute(sql) if wanted is None or row[2] in wanted)
        return {metric: units for metric, units in known.items() if len(units) > 1}

    def is_intact(self, entry: TableFile) -> bool:
        """Return whether the file exists with the digest in the catalog; it is read again only if it changed since the
        last check."""
        path = f"{self._place}/{entry.file}"
        try:
            stat = os.stat(path)  # noqa: PTH116 - called many times per query
            seen = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
            if _intact.get((path, entry.sha256)) == seen:
                return True
            whole = file_digest(Path(path)) == entry.sha256
        except FileNotFoundError:  # an unreadable file is not lost: remaking it may lose its rows
            return False
        if whole:
            if len(_intact) >= _MOST_INTACT:
                _intact.clear()
            _intact[path, entry.sha256] = seen
        return whole

    def replace_run(
        self,
        run: RunEntry,
        files: Sequence[TableFile],
        trials: Iterable[tuple[str, str]],
        units: Iterable[tuple[str, str]] = (),
        *,
        instead_of: Sequence[TableFile],
    ) -> bool:
        """Replace the run's files by `files`, if its current ones are still `instead_of` and all of `files` exist.

        Return False if another process was faster: read again and merge. `trials` are (trial_id, folder), `units`
        (metric, unit).
        """
        with self._writing():
            if self.files_of(run.run_id) != list(instead_of):
                return False
            root = str(self.workspace.warehouse)
            if not all(os.path.isfile(f"{root}/{entry.file}") for entry in files):  # noqa: PTH113 - ten times per run
                return False
            self._delete(run.run_id, "files", "trials", "units")
            self._insert("files", [tuple(vars(entry).values()) for entry in files])
            self._insert("runs", [tuple(vars(run).values())])
            self._insert("trials", [(trial, run.run_id, folder) for trial, folder in trials])
            self._insert("units", [(run.run_id, metric, unit) for metric, unit in units])
        return True

    def forget_run(self, run_id: str, instead_of: Sequence[TableFile]) -> bool:
        """Remove a run from the tables, if its current files are still `instead_of`; pinned files stay. Return False
        otherwise."""
        with self._writing():
            if self.files_of(run_id) != list(instead_of):
                return False
            self._delete(run_id, "files", "trials", "runs", "units")
        self.remove_unused(entry.file for entry in instead_of)
        return True

    def remove_unused(self, files: Iterable[str]) -> list[str]:
        """Delete those of `files` (relative paths) that no run uses and no report has pinned, and return them.

        A collector that loses a file this way, between writing and registering it, notices and writes it again.
        """
        names, removed = sorted(set(files)), list[str]()
        if not names:
            return removed
        used = "SELECT 1 FROM files WHERE file = :file UNION ALL SELECT 1 FROM pinned WHERE file = :file"
        with self._writing():
            for name in names:
                if self._db.execute(used, {"file": name}).fetchone() is None:
                    (self.workspace.warehouse / name).unlink(missing_ok=True)
                    removed.append(name)
        return removed

    def runs(self, limit: int = -1) -> list[RunEntry]:
        """Return runs, newest first; a `limit` below zero means no limit."""
        with self._reading():
            rows = self._db.execute("SELECT * FROM runs ORDER BY started DESC, run_id DESC LIMIT ?", [limit])
            return [RunEntry(*row) for row in rows]

    def has_run(self, run_id: str) -> bool:
        return self._first("SELECT run_id FROM runs WHERE run_id = ?", [run_id]) is not None

    # -- trials

    def trial_ids(self, prefix: str, limit: int) -> list[str]:
        return self._with_prefix("trials", "trial_id", prefix, limit)

    def run_of(self, trial_id: str) -> str | None:
        return self._first("SELECT run_id FROM trials WHERE trial_id = ?", [trial_id])

    def trial_folders(self, run_id: str) -> dict[str, Path]:
        with self._reading():
            rows = self._db.execute("SELECT trial_id, folder FROM trials WHERE run_id = ?", [run_id]).fetchall()
        return {trial: self.workspace.root / folder for trial, folder in rows}

    # -- published numbers

    def publish(self, report: str, refs: Iterable[str], files: Iterable[str]) -> None:
        """Record the report of each number, and pin the files from which it was computed."""
        with self._writing():
            self._insert("published", [(ref, report) for ref in refs])
            self._insert("pinned", [(file,) for file in files])

    def refs(self, prefix: str, limit: int) -> list[str]:
        return self._with_prefix("published", "ref", prefix, limit)

    def report_of(self, ref: str) -> str | None:
        return self._first("SELECT report FROM published WHERE ref = ?", [ref])

    # -- the ground

    def _delete(self, run_id: str, *tables: str) -> None:
        for table in tables:
            self._db.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])  # noqa: S608 - our own names

    def _insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our own names

    def _first(self, sql: str, values: Sequence[object]) -> str | None:
        with self._reading():
            row = self._db.execute(sql, values).fetchone()
        return str(row[0]) if row else None

    def _with_prefix(self, table: str, column: str, prefix: str, limit: int) -> list[str]:
        sql = f"SELECT {column} FROM {table} WHERE {column} >= ? AND {column} < ? ORDER BY 1 LIMIT ?"  # noqa: S608
        with self._reading():
            return [row[0] for row in self._db.execute(sql, [prefix, prefix + "\U0010ffff", limit])]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            path = self.workspace.warehouse / FILE_NAME
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL):
                raise unwritable(path.parent, OSError(str(error))) from error
            if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY):
                raise _unusable(path, error) from error
            hint = "Make it again from the evidence: bench warehouse rebuild"
            raise BenchError(f"{path}: {error}", hint) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a disk error may have ended it
                    self._db.execute("ROLLBACK")
                raise


def _unusable(path: Path, error: sqlite3.Error) -> BenchError:
    hint = "Make sure that no other process holds it and that the disk has room, then: bench collect; no trial is lost"
    return BenchError(f"{path}: {error}", hint, Exit.TRIAL_FAILED)


def _migrate(db: sqlite3.Connection) -> None:
    """Run all steps in one transaction, so that other processes see the old catalog or the new one."""
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    for step in MIGRATIONS[version:]:
        step(db)
    if version == 0:
        db.execute("INSERT INTO unfinished VALUES ('rebuild')")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    db.execute("COMMIT")


def _put_aside(path: Path) -> None:
    """Keep a damaged catalog for inspection, without its journal, which would damage the new one."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.damaged"))
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
