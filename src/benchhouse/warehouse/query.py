"""Questions to the tables: DuckDB in memory over the catalog's files, locked so that SQL can only read them."""

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
_NOT_PLAIN = re.compile(r"TIME|DATE|DECIMAL|UUID|BLOB|INTERVAL|HUGEINT")  # of a type: its values are no JSON
_SHOWN = 5
_OWN: set[str] = set()
_ATTEMPTS = 40  # a collector may replace files after the catalog was read and before the lake is


def own(sql: str) -> str:
    """Declare a question of this program: it may share an engine, which sees more files than it needs.

    Starting one costs 30 ms, three times as much as a question. What users write never gets there.
    """
    _OWN.add(sql)
    return sql


@dataclass(frozen=True)
class Result:
    """Rows that can go into JSON as they are: times are ISO 8601 text in UTC. `spec` says how to get them again."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    spec: QuerySpec

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class LimitedResult:
    """Rows of a query that was answered within limits: JSON objects, a text each."""

    json_rows: list[str]
    spec: QuerySpec
    more: bool
    """Whether there are more rows than its limits let through."""


_known = KnownAnswers[Result]()
_known_limited = KnownAnswers[LimitedResult]()
# Of each workspace: how its evidence stood when tables of an older schema were made again, and runs that had none.
_tried: dict[Path, tuple[list[tuple[str, int]], frozenset[str]]] = {}


class Warehouse:
    """The open tables of a workspace. `notes` holds what had to be repaired on the way."""

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
        """Open the tables; a lost catalog is made again first, which `say` (else the log) is told."""
        try:
            return cls(workspace, TableCatalog.open(workspace), say)
        except CatalogLost:
            from benchhouse.warehouse.ingest import open_catalog  # brings pyarrow, which costs 240 ms

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
        """Answer one SELECT; `$name` in it takes a parameter. With `runs`, only the files of those are read.

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
        """Answer one SELECT of somebody else, in a process of its own that is killed when it exceeds a limit."""

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
        """What `answer` makes of the intact files behind the tables that are named; again if they change meanwhile."""
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
                if self.catalog.files(tables, wanted) == entries:  # else a collector took files away meanwhile
                    raise
        raise BenchError("the tables changed each time they were read", hint="Try again when the collecting is done.")

    def query_again(self, spec: QuerySpec) -> Result:
        """Answer a pinned query over exactly the files that it names; the caller has checked their digests.

        What it answered before of these very bytes is its answer; what `query` answered is not.
        """
        key = key_of(str(self.workspace.root), f"again {spec.sql}", spec.parameters, spec.inputs)
        if spec.sql in _OWN and (known := _known.find(key)):
            return replace(known, rows=list(known.rows))
        try:
            result = self._run(spec.name, spec.sql, spec.parameters, spec.inputs)
        except BenchError:  # files of two schemas may be among them, of which the catalog knows nothing any more
            result = self._run(spec.name, spec.sql, spec.parameters, spec.inputs, older=True)
        if spec.sql in _OWN:
            _known.keep(key, result, len(result.rows) * len(result.columns))
        return result

    def require_run(self, run_id: str) -> str:
        """The id itself, where the tables have that run."""
        if not self.catalog.has_run(run_id):
            newest = ", ".join(run.run_id for run in self.catalog.runs(_SHOWN))
            known = f"the newest are {newest}" if newest else "nothing has been collected in this workspace yet"
            raise NotFoundError(f"run '{run_id}' has not been collected: {known}", f"bench collect {run_id}")
        return run_id

    def _intact_files(self, tables: Sequence[str], runs: Sequence[str] | None) -> list[TableFile]:
        """The catalog's files, after those that are damaged or of an older schema were made again."""
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
        """Make tables of an older schema again; where the evidence is missing they are read as they are.

        What is missing is looked for again only when evidence has come or gone: a look reads every row of a run.
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
            # Ours are known to be one SELECT; to look costs as much as to parse it.
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
            connection.execute(f"CREATE TEMP VIEW {quoted(name)} AS {select}")  # of this cursor alone
            self._shown.add(name)
        return connection

    def _connect(self, inputs: tuple[QueryInput, ...], older: bool) -> "duckdb.DuckDBPyConnection":
        """An engine that sees these files as views and nothing else of this machine; kept for the next query.

        `older`: some files are of an older schema and lack columns. Of the engines that a process has made the last is
        kept, too: to begin one that sees 1,000 files costs half a second.
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
    """The last engine in which views were made for SQL of users. It can only be read, by any number of cursors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._engine: duckdb.DuckDBPyConnection | None = None

    def get(
        self, workspace: WorkspaceFolder, inputs: tuple[QueryInput, ...], older: bool
    ) -> "duckdb.DuckDBPyConnection":
        """A cursor, which its user closes."""
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
    """Views over these files. With relative names SQL can't see where the workspace is."""
    root = os.path.realpath(workspace.warehouse)
    paths = dict[str, list[str]]()
    for file in inputs:
        paths.setdefault(file.table, []).append(os.path.normpath(f"{root}/{file.file}") if absolute else file.file)
    views = {table: TABLES[table].sql_over(listed(files), older=older) for table, files in paths.items()}
    allowed = listed([file for files in paths.values() for file in files])
    settings = ["TimeZone = 'UTC'"] if any(TABLES[table].source for table in paths) else []
    return ReadableFiles(root, views, f"allowed_paths = {allowed}", settings)


def _views_without_files(sql: str, present: Container[str]) -> dict[str, str]:
    """The views that the query names and that no file is behind; each costs milliseconds, so there are no others."""
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
    """What changes when evidence is brought or taken away: the folders of `results/`, and when each last changed."""
    stands = list[tuple[str, int]]()
    for folder in workspace.results.glob("*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            stands.append((folder.name, folder.stat().st_mtime_ns))
    return sorted(stands)


def _source_files(workspace: WorkspaceFolder, tables: Iterable[str]) -> list[QueryInput]:
    """JSON files behind tables that are not made of evidence, as they are now; `file` is relative to the warehouse."""
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
    """The tables that an answer is made of."""
    names = _names_in(sql)
    return sorted({*names - VIEWS.keys(), *(SOURCES if POINTS_VIEW.name in names else ())})


def _names_in(sql: str) -> set[str]:
    """The tables and views that are named; all, where none is and it may ask what there is: each costs milliseconds."""
    named = {match.lower() for match in _ANY_TABLE.findall(sql)}
    return named or ({*TABLES, *VIEWS} if _FROM_SOMEWHERE.search(sql) else set())


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more runs" if len(names) > _SHOWN else "")


def _with_plain(row: Sequence[Any], places: Iterable[int]) -> tuple[Any, ...]:
    """The row with plain values at these places."""
    values = list(row)
    for at in places:
        values[at] = as_plain(values[at])
    return tuple(values)
