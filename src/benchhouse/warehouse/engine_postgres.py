"""PostgreSQL as the warehouse of a team: rows in tables, one transaction per run, views for readers.

`benchhouse_store` holds the list of runs and the rows with their order in the lake; `benchhouse` shows them under the
names that SQL uses everywhere. Text sorts by its bytes, as in the embedded engine.
"""

# ruff: noqa: S608 - the names in these texts are our own

import io
import json
import math
import os
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from benchhouse.schema.errors import BenchError
from benchhouse.schema.query import QuerySpec
from benchhouse.schema.secrets import blanker, split_userinfo, without_secrets
from benchhouse.warehouse.engine import Files, RunTables, answer, checked, need_version, read_run
from benchhouse.warehouse.locked_engine import ONE_SELECT
from benchhouse.warehouse.points import POINTS_VIEW, postgres_view
from benchhouse.warehouse.query import Parameters, Result, Runs
from benchhouse.warehouse.run_tables import MEASUREMENT_FACT
from benchhouse.warehouse.table import SCHEMA_VERSION, Kind, Table, quoted
from benchhouse.warehouse.tables import EVIDENCE_TABLES
from benchhouse.warehouse.units import COMMENT, MIXED, by_metric, refuse_mixed_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa

ROLE = "benchhouse_reader"
"""The role that owns nothing and may read the views; `GRANT benchhouse_reader TO somebody` grants read access."""

_LOCK = 0x62656E6368  # taken while tables are made or changed
_TYPES: dict[Kind, str] = {
    "text": 'text COLLATE "C"',
    "texts": 'text[] COLLATE "C"',
    "integer": "bigint",
    "number": "double precision",
    "truth": "boolean",
    "time": "timestamp(3)",
}
# PostgreSQL's stddev_samp differs from the embedded engine's in the last digits: this is Welford's method, as there.
_DEVIATION = (
    """CREATE OR REPLACE FUNCTION benchhouse.deviate(s double precision[], x double precision)
       RETURNS double precision[] LANGUAGE sql IMMUTABLE STRICT AS
       'SELECT ARRAY[s[1] + 1, s[2] + (x - s[2]) / (s[1] + 1),
                     s[3] + (x - (s[2] + (x - s[2]) / (s[1] + 1))) * (x - s[2])]'""",
    """CREATE OR REPLACE FUNCTION benchhouse.deviated(s double precision[])
       RETURNS double precision LANGUAGE sql IMMUTABLE AS
       'SELECT CASE WHEN s[1] > 1 THEN sqrt(s[3] / (s[1] - 1)) END'""",
    """CREATE OR REPLACE AGGREGATE benchhouse.deviation(double precision)
       (SFUNC = benchhouse.deviate, STYPE = double precision[], FINALFUNC = benchhouse.deviated,
        INITCOND = '{0,0,0}')""",
)
_READS = re.compile(r"\s*(?:select|with|values|table|\()", re.IGNORECASE)
# The role is set for one query; these functions could let the query set another.
_CHANGES_ROLE = re.compile(
    r"\b(?:set_config|query_to_xml\w*|cursor_to_xml\w*|table_to_xml\w*|dblink\w*)\b|\bu&\"", re.I
)


SILENCE_S = 120.0
"""The seconds after which a server that sends nothing counts as stuck, while it reads a run or the list of runs. User
queries have no such limit."""


class PostgresEngine:
    """One database; the schemas are created or updated at the first write."""

    def __init__(self, address: str, silence_s: float = SILENCE_S) -> None:
        self._address, self._silence_s = address, silence_s
        self.name = without_secrets(address)
        self._heard = 0.0
        self._connection = self._connect()
        self._ready = False

    def runs(self) -> dict[str, Files]:
        with self._asking(), self._not_silent():
            return self._listed()

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        with self._asking(), self._not_silent():
            self._make_ready()
        with self._asking(), self._not_silent(), self._connection.transaction():
            self._do("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", [run.run_id, _LOCK])
            known = self._rows("SELECT files FROM benchhouse_store.runs WHERE run_id = %s", [run.run_id])
            if known != ([] if instead_of is None else [(dict(instead_of),)]):
                return False
            for name, table in EVIDENCE_TABLES.items():
                self._do(f"DELETE FROM {_stored(name)} WHERE run_id = %s", [run.run_id])
                if name in run.tables:
                    names = ", ".join(["_row", *(quoted(column.name) for column in table.columns)])
                    copying = f"COPY {_stored(name)} ({names}) FROM STDIN (FORMAT csv)"
                    with self._connection.cursor().copy(copying) as copy:
                        copy.write(_csv(table, run.run_id, run.tables[name]))
                    checked(table, self._copy_out(table, run.run_id), run.rows[name], f"{self.name}: run {run.run_id}")
            self._do(
                "INSERT INTO benchhouse_store.runs VALUES (%s, %s, %s, %s) ON CONFLICT (run_id) DO UPDATE SET "
                "schema_version = excluded.schema_version, files = excluded.files, rows = excluded.rows, "
                "pushed = now()",
                [run.run_id, SCHEMA_VERSION, json.dumps(run.files), json.dumps(run.rows)],
            )
        return True

    def read(self, run_id: str) -> RunTables:
        with self._asking(), self._not_silent(), self._connection.transaction():
            self._do("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            sql = "SELECT schema_version, files, rows FROM benchhouse_store.runs WHERE run_id = %s"
            entry = next(iter(self._rows(sql, [run_id])), None)
            return read_run(self.name, run_id, entry, lambda table: self._copy_out(table, run_id))

    def query(self, sql: str, parameters: Parameters = None, *, runs: Runs = None, name: str = "") -> Result:
        """Answer a query as a role that may only read the views, in a read-only transaction; `%(name)s` takes a
        parameter."""
        bare = COMMENT.sub(" ", sql)
        if not _READS.match(bare):
            raise BenchError(ONE_SELECT)
        if match := _CHANGES_ROLE.search(bare):
            raise BenchError(f"{match[0]}: refused, because it could change the role that the query runs as")
        given = dict(parameters or {})
        with self._asking(), self._connection.transaction(force_rollback=True):
            self._do("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            present = self._listed()
            refuse_mixed_units(sql, given, lambda: self._units() if present else {})
            if self._rows("SELECT 1 FROM pg_roles WHERE rolname = %s AND pg_has_role(oid, 'MEMBER')", [ROLE]):
                self._do(f"SET LOCAL ROLE {ROLE}")
            self._do("SET LOCAL search_path = benchhouse, pg_catalog")
            cursor = self._connection.cursor()
            cursor.execute(sql, given or None, prepare=True)  # prepared: one statement, not two
            description = cursor.description or []
            rows = cursor.fetchall() if description else []
            columns = [(column.name, column.type_display) for column in description]
        version = str(self._connection.info.parameter_status("server_version"))
        spec = QuerySpec(name=name, sql=sql, parameters=given, engine="postgresql", engine_version=version, inputs=[])
        return answer(rows, columns, spec, present, runs)

    def close(self) -> None:
        self._connection.close()

    # -- the ground

    def _connect(self) -> "psycopg.Connection[Any]":
        try:
            import psycopg
        except ImportError as error:
            raise BenchError("PostgreSQL needs psycopg", "pip install 'benchhouse[postgres]'") from error
        try:
            return psycopg.connect(
                self._address, autocommit=True, connect_timeout=20, application_name="benchhouse",
                keepalives_idle=30, keepalives_interval=10, keepalives_count=3,  # detects a server that vanished
                tcp_user_timeout=60_000,
                options="-c TimeZone=UTC -c DateStyle=ISO,YMD",
            )  # fmt: skip
        except (psycopg.Error, UnicodeError) as error:
            message = self._without_password(str(error).strip())
            raise BenchError(
                f"{self.name}: {message}", "Is it running, and is PGPASSWORD or the variable set?"
            ) from None

    @contextmanager
    def _asking(self) -> "Iterator[None]":
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            message = self._without_password(str(error).strip()) or type(error).__name__
            if self._heard < 0:
                message = f"no answer within {self._silence_s:g} s"
            raise BenchError(f"{self.name}: {message}", "Tables and columns: bench warehouse schema") from None

    @contextmanager
    def _not_silent(self) -> "Iterator[None]":
        """End the connection if nothing arrives: a stopped server enforces no timeout, and its TCP connection looks
        healthy."""
        over, self._heard = threading.Event(), time.monotonic()

        def watch() -> None:
            while not over.wait(max(0.0, self._heard + self._silence_s - time.monotonic())):
                if time.monotonic() - self._heard >= self._silence_s:
                    self._heard = -math.inf
                    with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as connected:
                        connected.shutdown(socket.SHUT_RDWR)
                    return

        thread = threading.Thread(target=watch, daemon=True, name="silence")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _without_password(self, text: str) -> str:
        password = split_userinfo(self._address)[1].partition(":")[2]
        return blanker([password])(text) if password else text

    def _do(self, sql: str, values: "list[Any] | None" = None) -> None:
        self._connection.execute(sql, values)
        self._heard = time.monotonic()

    def _rows(self, sql: str, values: "list[Any] | None" = None) -> list[Any]:
        rows = self._connection.execute(sql, values).fetchall()
        self._heard = time.monotonic()
        return rows

    def _exists(self) -> bool:
        return self._rows("SELECT to_regclass('benchhouse_store.runs')")[0][0] is not None

    def _listed(self) -> dict[str, Files]:
        if not self._exists():
            return {}
        need_version(self._rows("SELECT schema_version FROM benchhouse_store.layout")[0][0], self.name)
        return dict(self._rows("SELECT run_id, files FROM benchhouse_store.runs ORDER BY run_id"))

    def _units(self) -> dict[str, dict[str, str]]:
        return by_metric(self._rows(MIXED.format(_stored(MEASUREMENT_FACT.name))))

    def _make_ready(self) -> None:
        """Make the schemas, or add what a newer version of the tables has; one process at a time."""
        if self._ready:
            return
        with self._connection.transaction():
            self._do("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            layout = self._rows("SELECT schema_version FROM benchhouse_store.layout") if self._exists() else []
            if layout:
                need_version(layout[0][0], self.name)
            if not layout or layout[0][0] < SCHEMA_VERSION:
                self._make_tables()
        self._ready = True

    def _make_tables(self) -> None:
        self._do("CREATE SCHEMA IF NOT EXISTS benchhouse_store")
        self._do("CREATE SCHEMA IF NOT EXISTS benchhouse")
        self._do("CREATE TABLE IF NOT EXISTS benchhouse_store.layout (schema_version int NOT NULL)")
        self._do(
            'CREATE TABLE IF NOT EXISTS benchhouse_store.runs (run_id text COLLATE "C" PRIMARY KEY, schema_version int '
            "NOT NULL, files jsonb NOT NULL, rows jsonb NOT NULL, pushed timestamptz NOT NULL DEFAULT now())"
        )
        for statement in _DEVIATION:
            self._do(statement)
        self._do(f"DROP VIEW IF EXISTS benchhouse.{POINTS_VIEW.name}")  # it depends on those of the tables
        for table in EVIDENCE_TABLES.values():
            stored = _stored(table.name)
            columns = [f"{quoted(column.name)} {_TYPES[column.kind]}" for column in table.columns]
            self._do(f"CREATE TABLE IF NOT EXISTS {stored} (_row bigint NOT NULL, {', '.join(columns)})")
            self._do(f"ALTER TABLE {stored} {', '.join(f'ADD COLUMN IF NOT EXISTS {column}' for column in columns)}")
            self._do(f"CREATE INDEX IF NOT EXISTS {quoted(table.name + '_by_run')} ON {stored} (run_id, _row)")
            self._do(f"DROP VIEW IF EXISTS benchhouse.{quoted(table.name)}")
            self._do(f"CREATE VIEW benchhouse.{quoted(table.name)} AS {_shown(table)}")
        self._do(f"CREATE VIEW benchhouse.{POINTS_VIEW.name} AS {postgres_view()}")
        self._let_readers_in()
        self._do("DELETE FROM benchhouse_store.layout")
        self._do("INSERT INTO benchhouse_store.layout VALUES (%s)", [SCHEMA_VERSION])

    def _let_readers_in(self) -> None:
        """Create the role of readers. If this user may not create roles, an administrator can; transactions are
        read-only in any case."""
        import psycopg

        try:
            with self._connection.transaction():
                if not self._rows("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]):
                    self._do(f"CREATE ROLE {ROLE} NOLOGIN")
                self._do(f"GRANT USAGE ON SCHEMA benchhouse TO {ROLE}")
                self._do(f"GRANT SELECT ON ALL TABLES IN SCHEMA benchhouse TO {ROLE}")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation, psycopg.errors.DuplicateObject):
            return

    def _copy_out(self, table: Table, run_id: str) -> "pa.Table":
        """Return the rows of a run, in their order, with their types."""
        from psycopg import sql as compose

        names = ", ".join(
            f"to_json({quoted(column.name)})" if column.kind == "texts" else quoted(column.name)
            for column in table.columns
        )
        select = f"COPY (SELECT {names} FROM {_stored(table.name)} WHERE run_id = "
        sql = compose.SQL(select) + compose.Literal(run_id) + compose.SQL(" ORDER BY _row) TO STDOUT (FORMAT csv)")
        with self._connection.cursor().copy(sql) as copy:
            text = io.BytesIO()
            for piece in copy:
                text.write(piece)
                self._heard = time.monotonic()
        return _from_csv(table, text.getvalue())


def _stored(table: str) -> str:
    return f"benchhouse_store.{quoted(table)}"


def _shown(table: Table) -> str:
    """Return a SELECT of the visible rows; of a dimension's rows with the same key, the first run's."""
    names = ", ".join(quoted(column.name) for column in table.columns)
    if not table.key:
        return f"SELECT {names} FROM {_stored(table.name)}"
    key = ", ".join(map(quoted, table.key))
    return f"SELECT DISTINCT ON ({key}) {names} FROM {_stored(table.name)} ORDER BY {key}, run_id, _row"


def _csv(table: Table, run_id: str, content: "pa.Table") -> bytes:
    """Return the rows in the format of COPY: null is empty, an empty text is a pair of quotes."""
    import pyarrow as pa
    import pyarrow.csv as pc

    columns = [pa.array(range(content.num_rows), pa.int64())]
    for column in table.columns:
        values = content.column(column.name)
        if column.kind == "texts":
            values = pa.array([_array_text(value) for value in values.to_pylist()], pa.string())
        columns.append(values)
    made = pa.table(columns, names=["_row", *(column.name for column in table.columns)])
    out = io.BytesIO()
    pc.write_csv(made, out, pc.WriteOptions(include_header=False, quoting_style="all_valid"))
    text = out.getvalue()
    if b"\0" in text:
        raise BenchError(
            f"run {run_id}: a text in {table.name} has a character of code zero, which PostgreSQL can't hold",
            "Keep that run in a lake: bench warehouse push FOLDER",
        )
    return text


def _array_text(values: "list[str | None] | None") -> str | None:
    if values is None:
        return None
    parts = ["NULL" if text is None else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"' for text in values]
    return "{" + ",".join(parts) + "}"


def _from_csv(table: Table, text: bytes) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv as pc

    schema = table.schema
    if not text:
        return schema.empty_table()
    kinds = {field.name: pa.string() if pa.types.is_list(field.type) else field.type for field in schema}
    read = pc.read_csv(
        io.BytesIO(text),
        pc.ReadOptions(column_names=schema.names, block_size=max(1 << 20, len(text) + 1)),
        pc.ParseOptions(newlines_in_values=True),
        pc.ConvertOptions(
            column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            true_values=["t"], false_values=["f"],
        ),
    )  # fmt: skip
    columns = []
    for field in schema:
        values = read.column(field.name)
        if pa.types.is_list(field.type):
            values = pa.array([text and json.loads(text) for text in values.to_pylist()], field.type)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)
