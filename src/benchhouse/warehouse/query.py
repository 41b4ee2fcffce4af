"""Queries of the tables: DuckDB in memory over the catalog's files, locked so that SQL can only read them."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchhouse.schema.digests import file_digest
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import QueryInput, QueryLimits, QuerySpec
from benchhouse.warehouse.answer_cache import KnownAnswers, key_of
from benchhouse.warehouse.catalog import UNFINISHED, CatalogLost, TableCatalog, TableFile
from benchhouse.warehouse.locked_engine import as_plain, listed, one_select, open_engine
from benchhouse.warehouse.points import POINTS_VIEW, SOURCES, duckdb_view
from benchhouse.warehouse.query_deadline import while_wanted
from benchhouse.warehouse.query_pool import ReadableFiles, query_pool
from benchhouse.warehouse.repeatable_sql import is_repeatable
from benchhouse.warehouse.shared_database import SharedViews, is_in_lake, own_temporary_files
from benchhouse.warehouse.table import SCHEMA_VERSION, quoted
from benchhouse.warehouse.tables import TABLES, VIEWS
from benchhouse.warehouse.units import refuse_mixed_units

if TYPE_CHECKING:
    import duckdb

Parameters = Mapping[str, Any] | None
Runs = Iterable[str] | None
T = TypeVar("T")
_ANY_TABLE = re.compile(rf"\b(?:{'|'.join([*TABLES, *VIEWS])})\b", re.IGNORECASE)
_FROM_SOMEWHERE = re.compile(r"\b(?:from|show|describe|summarize|table)\b", re.IGNORECASE)
_NOT_PLAIN = re.compile(r"TIME|DATE|DECIMAL|UUID|BLOB|INTERVAL|HUGEINT")  # types whose values are not JSON
_SHOWN = 5
_OWN: set[str] = set()
_ATTEMPTS = 40  # a collector may replace files between the reads of the catalog and the lake


def own(sql: str) -> str:
    """Declare a query of this program: it may share an engine, which sees more files than the query needs.

    Starting an engine costs 30 ms, three times the cost of a query. SQL of users never runs in a shared engine.
    """
    _OWN.add(sql)
    return sql


@dataclass(frozen=True)
class Result:
    """Rows that can be written as JSON: times are ISO 8601 text in UTC. `spec` reproduces them."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    spec: QuerySpec

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class LimitedResult:
    """Rows of a query within limits, each as the text of a JSON object."""

    json_rows: list[str]
    spec: QuerySpec
    more: bool
    """Whether there are more rows than the limits allow."""


_known = KnownAnswers[Result]()
_known_limited = KnownAnswers[LimitedResult]()
# By workspace: the state of the evidence when tables of an older schema were last renewed, and runs without evidence.
_tried: dict[Path, tuple[list[tuple[str, int]], frozenset[str]]] = {}


class Warehouse:
    """The open tables of a workspace. `notes` lists repairs made on the way."""

    def __init__(
        self, workspace: WorkspaceFolder, catalog: TableCatalog, say: Callable[[str], None] | None = None
    ) -> None:
        self.workspace = workspace
        self.catalog = catalog
        self.notes: list[str] = []
        self._say = say
        self._shown: set[str] = set()
        self._engine: tuple[tuple[tuple[QueryInput, ...], bool], duckdb.DuckDBPyConnection] | None = None
        self._shared: SharedViews | None = None

    @classmethod
    def open(cls, workspace: WorkspaceFolder, say: Callable[[str], None] | None = None) -> "Warehouse":
        """Open the tables; a lost catalog is rebuilt first, which is reported to `say` (default: the log)."""
        try:
            return cls(workspace, TableCatalog.open(workspace), say)
        except CatalogLost:
            from benchhouse.warehouse.ingest import open_catalog  # imports pyarrow, which costs 240 ms

            return cls(workspace, open_catalog(workspace, say), say)

    def __enter__(self) -> "Warehouse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._engine:
            self._engine[1].close()
            self._engine = None
        if self._shared:
            self._shared.close()
            self._shared = None
        self.catalog.close()

    def query(self, sql: str, parameters: Parameters = None, *, runs: Runs = None, name: str = "") -> Result:
        """Answer one SELECT; `$name` in it takes a parameter. With `runs`, only their files are read.

        The bytes of every file are checked against the catalog first; a damaged one is made again from evidence.
        """

        def answer(inputs: list[QueryInput], older: bool) -> Result:
            key = key_of(str(self.workspace.root), sql, parameters or {}, inputs)
            kept = sql in _OWN or is_repeatable(sql)
            if kept and (known := _known.find(key)):
                return replace(known, rows=list(known.rows))
            result = self._run(name, sql, parameters or {}, inputs, older)
            if kept:
                _known.keep(key, result, len(result.rows) * len(result.columns))
                return replace(result, rows=list(result.rows))
            return result

        return self._over_files(sql, parameters, runs, answer)

    def query_within(self, limits: QueryLimits, sql: str) -> LimitedResult:
        """Answer one SELECT of another user, in a separate process that is killed when it exceeds a limit."""

        def answer(inputs: list[QueryInput], older: bool) -> LimitedResult:
            key = key_of(str(self.workspace.root), f"{limits.rows} rows {sql}", {}, inputs)
            kept = is_repeatable(sql)
            if kept and (known := _known_limited.find(key)):
                return known
            files = _files(self.workspace, inputs, older)
            views = _views_without_files(sql, files.views)
            answered = query_pool().answer(self.workspace.warehouse / UNFINISHED, files, views, sql, limits)
            result = LimitedResult(answered.json_rows, _spec("", sql, {}, inputs), answered.more)
            if kept:
                _known_limited.keep(key, result, len(result.json_rows))
            return result

        return self._over_files(sql, None, None, answer)

    def _over_files(
        self, sql: str, parameters: Parameters, runs: Runs, answer: Callable[[list[QueryInput], bool], T]
    ) -> T:
        """Call `answer` with the intact files behind the named tables, and again if they change in the meantime."""
        tables = tables_in(sql)
        wanted = None if runs is None else sorted(set(runs))
        refuse_mixed_units(sql, parameters or {}, lambda: self.catalog.units(wanted))
        for _ in range(_ATTEMPTS):
            entries = self._intact_files(tables, wanted)
            inputs = [_input(entry.table, entry.run_id, entry.file, entry.sha256) for entry in entries]
            inputs += _source_files(self.workspace, tables)
            try:
                return answer(inputs, any(entry.schema_version < SCHEMA_VERSION for entry in entries))
            except BenchError:
                if self.catalog.files(tables, wanted) == entries:  # otherwise a collector removed files in the meantime
                    raise
        raise BenchError("the tables changed each time they were read", hint="Try again when the collecting is done.")

    def query_again(self, spec: QuerySpec) -> Result:
        """Answer a pinned query over exactly the files that it names; the caller has checked their digests.

        It may return its own earlier answer for the same bytes, but never an answer of `query`.
        """
        key = key_of(str(self.workspace.root), f"again {spec.sql}", spec.parameters, spec.inputs)
        if spec.sql in _OWN and (known := _known.find(key)):
            return replace(known, rows=list(known.rows))
        try:
            result = self._run(spec.name, spec.sql, spec.parameters, spec.inputs)
        except BenchError:  # there may be files of two schemas, which the catalog no longer lists
            result = self._run(spec.name, spec.sql, spec.parameters, spec.inputs, older=True)
        if spec.sql in _OWN:
            _known.keep(key, result, len(result.rows) * len(result.columns))
        return result

    def require_run(self, run_id: str) -> str:
        """Return the id if the tables have that run. Raise NotFoundError otherwise."""
        if not self.catalog.has_run(run_id):
            newest = ", ".join(run.run_id for run in self.catalog.runs(_SHOWN))
            known = f"the newest are {newest}" if newest else "nothing has been collected in this workspace yet"
            raise NotFoundError(f"run '{run_id}' has not been collected: {known}", f"bench collect {run_id}")
        return run_id

    def _intact_files(self, tables: Sequence[str], runs: Sequence[str] | None) -> list[TableFile]:
        """Return the catalog's files, after remaking those that are damaged or of an older schema."""
        repaired: set[str] = set()
        for _ in range(_ATTEMPTS):
            entries = self.catalog.files(tables, runs)
            newer = next((entry for entry in entries if entry.schema_version > SCHEMA_VERSION), None)
            if newer:
                raise BenchError(
                    f"{newer.file}: schema version {newer.schema_version}, but this benchhouse knows {SCHEMA_VERSION}",
                    hint="Use the newer benchhouse that wrote it.",
                )
            older = [run for run in self.catalog.older_runs(SCHEMA_VERSION, runs) if run not in repaired]
            damaged = [entry for entry in entries if entry.run_id not in older and not self.catalog.is_intact(entry)]
            if not damaged and not older:
                return entries
            present = set(self.catalog.files(tables, runs))
            damaged = [entry for entry in damaged if entry in present]
            if not repaired.isdisjoint(entry.run_id for entry in damaged):
                break
            self._renew(older)
            self._repair(damaged)
            repaired |= {*older, *(entry.run_id for entry in damaged)}
        names = ", ".join(entry.file for entry in damaged[:_SHOWN])
        raise BenchError(
            f"{len(damaged)} files of the warehouse are damaged, and can't be made again: {names}",
            hint="Their evidence under results/ is missing or damaged. What is there: bench warehouse rebuild",
        )

    def _renew(self, runs: Sequence[str]) -> None:
        """Make tables of an older schema again; if the evidence is missing, they are read as they are.

        Missing evidence is searched again only after evidence was added or removed, because a search reads every row of
        a run.
        """
        from benchhouse.warehouse.ingest import collect

        root, stands = self.workspace.root, _evidence_stands(self.workspace)
        before, missing = _tried.get(root, (stands, frozenset[str]()))
        if before != stands:
            missing = frozenset()
        for run_id in runs:
            if run_id in missing:
                continue
            done = collect(self.workspace, run_id, self.catalog.trial_folders(run_id).values())
            if done.trials:
                for line in done.skipped:
                    self._note(f"left out of the tables: {line}")
        kept = self.catalog.older_runs(SCHEMA_VERSION, runs)
        _tried[root] = stands, missing.union(kept)
        if made := [run for run in runs if run not in kept]:
            self._note(f"{_few(made)}: of an older schema; made again from the evidence, now version {SCHEMA_VERSION}")
        if kept:
            self._note(
                f"{_few(kept)}: of an older schema, and the evidence is missing: read as written, what version "
                f"{SCHEMA_VERSION} added is null"
            )

    def _repair(self, damaged: Sequence[TableFile]) -> None:
        from benchhouse.warehouse.ingest import collect

        for run_id in sorted({entry.run_id for entry in damaged}):
            files = ", ".join(entry.file for entry in damaged if entry.run_id == run_id)
            done = collect(self.workspace, run_id, self.catalog.trial_folders(run_id).values())
            if done.trials:
                self._note(f"{files}: damaged; made again from the evidence of run {run_id}")
            for line in done.skipped:
                self._note(f"left out of the tables: {line}")

    def _note(self, text: str) -> None:
        self.notes.append(text)
        if self._say:
            self._say(text)

    def _run(
        self, name: str, sql: str, parameters: Mapping[str, Any], inputs: Sequence[QueryInput], older: bool = False
    ) -> Result:
        import duckdb

        try:
            connection = self._engine_for(sql, inputs, older)
            # Our queries are known to be one SELECT, and checking costs as much as parsing.
            statement = sql if sql in _OWN else one_select(connection, sql)
            with while_wanted(connection):
                cursor = connection.execute(statement, dict(parameters) or None)
                description = cursor.description or []
                rows = cursor.fetchall()
        except duckdb.InterruptException as error:
            raise BenchError("the query was ended, because its answer is not wanted any more") from error
        except duckdb.Error as error:
            hint = "Tables and columns: bench warehouse schema"
            raise BenchError(f"the warehouse can't answer: {str(error).strip()}", hint=hint) from error
        types = tuple(str(column[1]) for column in description)
        if places := [at for at, kind in enumerate(types) if _NOT_PLAIN.search(kind)]:
            rows = [_with_plain(row, places) for row in rows]
        return Result(
            tuple(str(column[0]) for column in description), types, rows, _spec(name, sql, parameters, inputs)
        )

    def _engine_for(self, sql: str, inputs: Sequence[QueryInput], older: bool) -> "duckdb.DuckDBPyConnection":
        if sql in _OWN and all(map(is_in_lake, inputs)):
            self._shared = self._shared or SharedViews(self.workspace)
            return self._shared.show(tables_in(sql), inputs, older)
        connection = self._connect(tuple(inputs), older)
        for name, select in _views_without_files(sql, self._shown).items():
            connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS {select}")  # only in this cursor
            self._shown.add(name)
        return connection

    def _connect(self, inputs: tuple[QueryInput, ...], older: bool) -> "duckdb.DuckDBPyConnection":
        """Return an engine that sees these files as views and nothing else of this machine; it is kept for the next
        query.

        `older`: some files are of an older schema and lack columns. The last engine of the process is kept too, because
        starting one that sees 1,000 files costs half a second.
        """
        if self._engine and self._engine[0] == (inputs, older):
            return self._engine[1]
        if self._engine:
            self._engine[1].close()
            self._engine = None
        self._shown = {file.table for file in inputs}
        connection = _last_engine.get(self.workspace, inputs, older)
        self._engine = (inputs, older), connection
        return connection


class _LastEngine:
    """The last engine with views for SQL of users. It is read-only, and any number of cursors can use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._engine: duckdb.DuckDBPyConnection | None = None

    def get(
        self, workspace: WorkspaceFolder, inputs: tuple[QueryInput, ...], older: bool
    ) -> "duckdb.DuckDBPyConnection":
        """Return a cursor, which the caller closes."""
        key = os.getpid(), workspace.root, inputs, older
        with self._lock:
            if self._engine is None or self._key != key:
                files = _files(workspace, inputs, older, absolute=True)
                settings = (*files.settings, *own_temporary_files(workspace))
                self._engine, self._key = open_engine(files.views, files.allowed, settings), key
            return self._engine.cursor()


_last_engine = _LastEngine()


def _files(
    workspace: WorkspaceFolder, inputs: Sequence[QueryInput], older: bool, *, absolute: bool = False
) -> ReadableFiles:
    """Return views over these files. With relative names, SQL can't see where the workspace is."""
    root = os.path.realpath(workspace.warehouse)
    paths = dict[str, list[str]]()
    for file in inputs:
        paths.setdefault(file.table, []).append(os.path.normpath(f"{root}/{file.file}") if absolute else file.file)
    views = {table: TABLES[table].sql_over(listed(files), older=older) for table, files in paths.items()}
    allowed = listed([file for files in paths.values() for file in files])
    settings = ["TimeZone = 'UTC'"] if any(TABLES[table].source for table in paths) else []
    return ReadableFiles(root, views, f"allowed_paths = {allowed}", settings)


def _views_without_files(sql: str, present: Container[str]) -> dict[str, str]:
    """Return the views in the query that have no files. Each costs milliseconds, so no others are made."""
    views = {table: TABLES[table].empty_sql() for table in tables_in(sql) if table not in present}
    if POINTS_VIEW.name in _names_in(sql) and POINTS_VIEW.name not in present:
        views[POINTS_VIEW.name] = duckdb_view()
    return views


def _spec(name: str, sql: str, parameters: Mapping[str, Any], inputs: Sequence[QueryInput]) -> QuerySpec:
    import duckdb

    return QuerySpec(
        name=name, sql=sql, parameters=dict(parameters), engine_version=duckdb.__version__, inputs=list(inputs)
    )


def _evidence_stands(workspace: WorkspaceFolder) -> list[tuple[str, int]]:
    """Return a state that changes when evidence is added or removed: the folders of `results/` and when each last
    changed."""
    stands = list[tuple[str, int]]()
    for folder in workspace.results.glob("*"):
        with contextlib.suppress(OSError):  # removed in the meantime
            stands.append((folder.name, folder.stat().st_mtime_ns))
    return sorted(stands)


def _source_files(workspace: WorkspaceFolder, tables: Iterable[str]) -> list[QueryInput]:
    """Return the current JSON files behind tables without evidence; `file` is relative to the warehouse."""
    return [
        QueryInput(table=table, run_id="", file=os.path.relpath(path, workspace.warehouse), sha256=file_digest(path))
        for table in tables
        if TABLES[table].source
        for path in sorted(workspace.root.glob(TABLES[table].source))
        if path.is_file() and path.stat().st_size
    ]


@lru_cache(20_000)
def _input(table: str, run_id: str, file: str, sha256: str) -> QueryInput:
    return QueryInput(table=table, run_id=run_id, file=file, sha256=sha256)


def tables_in(sql: str) -> list[str]:
    """Return the tables from which an answer is computed."""
    names = _names_in(sql)
    return sorted({*names - VIEWS.keys(), *(SOURCES if POINTS_VIEW.name in names else ())})


def _names_in(sql: str) -> set[str]:
    """Return the tables and views in the SQL; all if it names none but may list them. Each costs milliseconds."""
    named = {match.lower() for match in _ANY_TABLE.findall(sql)}
    return named or ({*TABLES, *VIEWS} if _FROM_SOMEWHERE.search(sql) else set())


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more runs" if len(names) > _SHOWN else "")


def _with_plain(row: Sequence[Any], places: Iterable[int]) -> tuple[Any, ...]:
    """Return the row with plain values at these places."""
    values = list(row)
    for at in places:
        values[at] = as_plain(values[at])
    return tuple(values)
