"""ClickHouse in a folder (chdb): the same tables in its dialect.

ClickHouse has no transactions, so the rows of a push carry its own mark, and the views show those of the last mark
entered in `benchhouse_store.runs`, with one insert. The remains of an interrupted push are never visible, and the next
push removes them. Only one process at a time has the folder: others wait for its lock.
"""

# ruff: noqa: S608 - the names in these texts are our own

import fcntl
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchhouse.schema.errors import BenchError, unwritable
from benchhouse.schema.query import QuerySpec
from benchhouse.warehouse.engine import Files, RunTables, answer, checked, need_version, read_run
from benchhouse.warehouse.locked_engine import ONE_SELECT
from benchhouse.warehouse.points import POINTS_VIEW, clickhouse_view
from benchhouse.warehouse.query import Parameters, Result, Runs
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT
from benchhouse.warehouse.table import SCHEMA_VERSION, Kind, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES
from benchhouse.warehouse.units import MIXED, by_metric, refuse_mixed_units

WAIT_S = 600.0
_TYPES: dict[Kind, str] = {
    "text": "Nullable(String)",
    "texts": "Array(Nullable(String))",  # a list cannot be null: `_null_NAME` marks null lists
    "integer": "Nullable(Int64)",
    "number": "Nullable(Float64)",
    "truth": "Nullable(Bool)",
    "time": "Nullable(DateTime64(3, 'UTC'))",
}
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'")
_FORBIDDEN = re.compile(r"\b(?:file|settings)\b", re.IGNORECASE)  # no column of ours has such a name
_CURRENT = "SELECT run_id, argMax(mark, entered) FROM benchhouse_store.runs GROUP BY run_id"


class ClickHouseEngine:
    """A folder with ClickHouse's own files, created if it is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.name = folder, f"clickhouse:{folder}"
        try:
            import chdb  # noqa: F401 - checks that it is installed
        except ImportError as error:
            raise BenchError("ClickHouse needs chdb", "pip install 'benchhouse[clickhouse]'") from error
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / ".benchhouse.lock")
        except OSError as error:
            raise unwritable(folder, error) from error
        self._session: Any = None
        self._read_only = False
        try:
            with self._asking(writes=True):
                self._make_ready()
        except BaseException:
            self.close()
            raise

    def runs(self) -> dict[str, Files]:
        sql = "SELECT run_id, argMax(files, entered) FROM benchhouse_store.runs GROUP BY run_id ORDER BY run_id"
        with self._asking():
            return {run_id: json.loads(files) for run_id, files in self._rows(sql)}

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        with self._asking(writes=True):
            present = self.runs().get(run.run_id)
            if present != (None if instead_of is None else dict(instead_of)):
                return False
            self._sweep()
            mark = uuid.uuid4().hex
            self._do("INSERT INTO benchhouse_store.begun VALUES ({mark:String})", mark=mark)
            for name, content in run.tables.items():
                table = EVIDENCE_TABLES[name]
                self._insert(table, mark, content)
                checked(table, self._select(table, mark), run.rows[name], f"{self.name}: run {run.run_id}")
            self._do(
                "INSERT INTO benchhouse_store.runs SELECT {run:String}, {mark:String}, {version:Int32}, "
                "{files:String}, {rows:String}, now64(9)",
                run=run.run_id, mark=mark, version=str(SCHEMA_VERSION), files=json.dumps(run.files),
                rows=json.dumps(run.rows),
            )  # fmt: skip
            if present is not None:
                self._sweep()
        return True

    def read(self, run_id: str) -> RunTables:
        sql = (
            "SELECT mark, schema_version, files, rows FROM benchhouse_store.runs WHERE run_id = {run:String} "
            "ORDER BY entered DESC LIMIT 1"
        )
        with self._asking():
            mark, version, files, rows = next(iter(self._rows(sql, run=run_id)), ("", 0, "", ""))
            entry = (version, json.loads(files), json.loads(rows)) if mark else None
            return read_run(self.name, run_id, entry, lambda table: self._select(table, mark))

    def query(self, sql: str, parameters: Parameters = None, *, runs: Runs = None, name: str = "") -> Result:
        """Answer a query in a read-only session; `{name:Type}` takes a parameter."""
        given = dict(parameters or {})
        self._open(read_only=True)
        with self._asking():
            present = self.runs()
            refuse_mixed_units(sql, given, self._units)
            result = self._arrow(f"SELECT * FROM ({self._normalised(sql)})", given)
            version = str(self._rows("SELECT version()")[0][0])
        spec = QuerySpec(name=name, sql=sql, parameters=given, engine="clickhouse", engine_version=version, inputs=[])
        return answer(_tuples(result), [(field.name, str(field.type)) for field in result.schema], spec, present, runs)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        self._lock.close()

    # -- the ground

    def _open(self, *, read_only: bool = False) -> None:
        """Open a session. A read-only session stays read-only, so writing opens another."""
        from chdb.session import Session

        if self._session is not None and self._read_only == read_only:
            return
        if self._session is not None:
            self._session.close()
        self._session, self._read_only = Session(str(self._folder)), read_only  # type: ignore[no-untyped-call, unused-ignore]
        if read_only:
            self._session.query("USE benchhouse")
            self._session.query("SET readonly = 1")

    @contextmanager
    def _asking(self, *, writes: bool = False) -> Iterator[None]:
        from chdb import ChdbError

        if writes or self._session is None:
            self._open()
        try:
            yield
        except (ChdbError, RuntimeError) as error:
            # The packages chdb and chdb-core both install chdb/__init__.py. The one of chdb exports a class that
            # sessions do not raise; theirs is a RuntimeError.
            message = re.sub(r"\s*\(version [^)]*\)", "", str(error).strip())
            raise BenchError(f"{self.name}: {message}", "Tables and columns: bench warehouse schema") from None

    def _do(self, sql: str, **parameters: str) -> None:
        self._session.query(sql, "Null", params={key: _parameter(value) for key, value in parameters.items()})

    def _rows(self, sql: str, **parameters: str) -> list[tuple[Any, ...]]:
        return _tuples(self._arrow(sql, parameters))

    def _arrow(self, sql: str, parameters: Mapping[str, Any]) -> pa.Table:
        texts = {key: _parameter(value) for key, value in parameters.items()}
        content = self._session.query(sql, "Arrow", params=texts).bytes()
        return pa.ipc.open_file(pa.BufferReader(content)).read_all() if content else pa.table({})

    def _normalised(self, sql: str) -> str:
        """Return the query as ClickHouse itself parses and prints it: one SELECT, without comments.

        Inside another SELECT it cannot choose a file or a format to write. The function `file` reads any file of the
        machine even in read-only sessions, and settings could allow more, so both are refused.
        """
        statement = str(self._rows("SELECT formatQuerySingleLine({text:String})", text=sql.strip().rstrip(";"))[0][0])
        if not re.match(r"\(*\s*(?:SELECT|WITH)\b", statement):
            raise BenchError(ONE_SELECT)
        if match := _FORBIDDEN.search(_TEXT.sub("''", statement)):
            raise BenchError(f"{match[0]}: refused, because with it a query could read or write other files")
        return statement

    def _units(self) -> dict[str, dict[str, str]]:
        return by_metric(self._rows(MIXED.format(f"benchhouse.{MEASUREMENT_FACT.name}")))

    def _make_ready(self) -> None:
        if self._rows("SELECT 1 FROM system.tables WHERE database = 'benchhouse_store' AND name = 'layout'"):
            version = self._rows("SELECT max(schema_version) FROM benchhouse_store.layout")[0][0]
            need_version(version, self.name)
            if version == SCHEMA_VERSION:
                return
        for database in ("benchhouse_store", "benchhouse"):
            self._do(f"CREATE DATABASE IF NOT EXISTS {database} ENGINE = Atomic")
        self._do(
            "CREATE TABLE IF NOT EXISTS benchhouse_store.runs (run_id String, mark String, schema_version Int32, "
            "files String, rows String, entered DateTime64(9, 'UTC')) ENGINE = MergeTree ORDER BY (run_id, entered)"
        )
        self._do("CREATE TABLE IF NOT EXISTS benchhouse_store.begun (mark String) ENGINE = MergeTree ORDER BY mark")
        known = set(self._rows("SELECT table, name FROM system.columns WHERE database = 'benchhouse_store'"))
        for table in EVIDENCE_TABLES.values():
            columns = [f"`{name}` {kind}" for name, kind in _stored(table)]
            self._do(
                f"CREATE TABLE IF NOT EXISTS benchhouse_store.{table.name} (_mark String, _row Int64, "
                f"{', '.join(columns)}) ENGINE = MergeTree ORDER BY (run_id, _mark, _row)"
            )
            if (table.name, "_mark") in known:  # of an older version
                for name, kind in _stored(table):
                    if (table.name, name) not in known:
                        self._do(f"ALTER TABLE benchhouse_store.{table.name} ADD COLUMN `{name}` {kind}")
            self._do(f"CREATE OR REPLACE VIEW benchhouse.{table.name} AS {_shown(table)}")
        layout = "benchhouse_store.layout (schema_version Int32)"
        self._do(f"CREATE TABLE IF NOT EXISTS {layout} ENGINE = MergeTree ORDER BY ()")
        self._do(f"CREATE OR REPLACE VIEW benchhouse.{POINTS_VIEW.name} AS {clickhouse_view()}")
        self._do(f"INSERT INTO benchhouse_store.layout VALUES ({SCHEMA_VERSION})")

    def _sweep(self) -> None:
        """Remove rows of interrupted pushes, and of pushes that a later one replaced."""
        last = "SELECT argMax(mark, entered) FROM benchhouse_store.runs GROUP BY run_id"
        for (mark,) in self._rows(f"SELECT mark FROM benchhouse_store.begun WHERE mark NOT IN ({last})"):
            for name in EVIDENCE_TABLES:
                some = f"SELECT 1 FROM benchhouse_store.{name} WHERE _mark = {{mark:String}} LIMIT 1"
                if self._rows(some, mark=mark):
                    self._remove(name, "_mark", mark)
            for name in ("runs", "begun"):
                self._remove(name, "mark", mark)

    def _remove(self, table: str, column: str, mark: str) -> None:
        assert mark.isalnum()  # our own; a mutation takes no parameters
        self._do(f"ALTER TABLE benchhouse_store.{table} DELETE WHERE {column} = '{mark}' SETTINGS mutations_sync = 2")

    def _insert(self, table: Table, mark: str, content: pa.Table) -> None:
        columns = [pa.array([mark] * content.num_rows), pa.array(range(content.num_rows), pa.int64())]
        names = ["_mark", "_row"]
        for column in table.columns:
            values = content.column(column.name)
            columns.append(values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values)
            names.append(column.name)
            if column.kind == "texts":
                columns.append(values.is_null().cast(pa.uint8()))
                names.append(f"_null_{column.name}")
        made = pa.table(columns, names=names)
        incoming = self._folder / f".incoming-{mark}.arrow"
        try:
            with pa.OSFile(str(incoming), "wb") as out, pa.ipc.new_file(out, made.schema) as writer:
                writer.write_table(made)
            listed = ", ".join(f"`{name}`" for name in names)
            self._do(
                f"INSERT INTO benchhouse_store.{table.name} ({listed}) SELECT {listed} "
                "FROM file({path:String}, Arrow) SETTINGS input_format_null_as_default = 1",
                path=str(incoming),
            )
        finally:
            incoming.unlink(missing_ok=True)

    def _select(self, table: Table, mark: str) -> pa.Table:
        """Return the rows of a push, in their order, with their types."""
        names = ", ".join(f"`{name}`" for name, _ in _stored(table))
        sql = f"SELECT {names} FROM benchhouse_store.{table.name} WHERE _mark = {{mark:String}} ORDER BY _row"
        content = self._arrow(sql, {"mark": mark})
        if not content.num_columns:
            return table.schema.empty_table()
        columns = []
        for field in table.schema:
            values = content.column(field.name).combine_chunks().cast(field.type)
            if pa.types.is_list(field.type):
                is_null = content.column(f"_null_{field.name}").combine_chunks().cast(pa.bool_())
                values = pc.if_else(is_null, pa.scalar(None, field.type), values)
            columns.append(values)
        return pa.Table.from_arrays(columns, schema=table.schema)


def _stored(table: Table) -> Iterator[tuple[str, str]]:
    """Yield the columns with their types: ours, and one per list column that marks null."""
    for column in table.columns:
        # A run's id is part of the sorting key, which cannot be null.
        yield column.name, "String" if column.name == "run_id" else _TYPES[column.kind]
        if column.kind == "texts":
            yield f"_null_{column.name}", "UInt8"


def _shown(table: Table) -> str:
    """Return a SELECT of the visible rows; of a dimension's rows with the same key, the first run's."""
    names = ", ".join(f"`{column.name}`" for column in table.columns)
    sql = f"SELECT {names} FROM benchhouse_store.{table.name} WHERE (run_id, _mark) IN ({_CURRENT})"
    if not table.key:
        return sql
    key = ", ".join(f"`{name}`" for name in table.key)
    return f"{sql} ORDER BY {key}, run_id, _row LIMIT 1 BY {key}"


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(at).to_pylist() for at in range(table.num_columns)), strict=True))


def _parameter(value: Any) -> str:
    """Return the text of a parameter as ClickHouse parses it."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join("'" + _escaped(str(item)) + "'" for item in value) + "]"
    return _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _locked(path: Path) -> Any:
    """Lock a folder, and wait for another process that holds the lock. Raise BenchError after WAIT_S."""
    file = path.open("w")
    ends = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > ends:
                file.close()
                raise BenchError(f"{path.parent}: another process has held it for {WAIT_S:g} s") from None
            time.sleep(0.05)
