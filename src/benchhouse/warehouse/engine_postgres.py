"""PostgreSQL as the warehouse of a team: rows in tables of their own, one transaction a run, readers see views.

`benchhouse_store` holds the rows with their order in the lake, and which runs there are; `benchhouse` shows them under
the names that SQL uses everywhere. Text sorts by its bytes, as it does in the embedded engine.
"""

# ruff: noqa: S608 - the names in these texts are our own

import io
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse.engine import Files, RunTables, answer, checked, need_version, spec_of
from benchhouse.warehouse.points import POINTS_VIEW, postgres_view
from benchhouse.warehouse.query import Result
from benchhouse.warehouse.table import SCHEMA_VERSION, Kind, Table, quoted
from benchhouse.warehouse.tables import EVIDENCE_TABLES, MEASUREMENT_FACT
from benchhouse.warehouse.units import refuse_mixed_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    import pyarrow as pa

ROLE = "benchhouse_reader"
"""Owns nothing and may read the views; `GRANT benchhouse_reader TO somebody` lets them ask."""

_LOCK = 0x62656E6368  # of whoever makes or changes the tables
_TYPES: dict[Kind, str] = {
    "text": 'text COLLATE "C"',
    "texts": 'text[] COLLATE "C"',
    "integer": "bigint",
    "number": "double precision",
    "truth": "boolean",
    "time": "timestamp(3)",
}
# PostgreSQL's own stddev_samp differs from the embedded engine's in the last digits: this is Welford's, as that is.
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
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# The role is put on for the question; by these a question could take it off again.
_UNDRESSES = re.compile(r"\b(?:set_config|query_to_xml\w*|cursor_to_xml\w*|table_to_xml\w*|dblink\w*)\b|\bu&\"", re.I)


class PostgresEngine:
    """One database; the schemas are made, or brought up to date, when something is first written."""

    def __init__(self, address: str) -> None:
        self._address = address
        parts = urlsplit(address)
        self._name = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._connection = self._connect()
        self._ready = False

    @property
    def name(self) -> str:
        return self._name

    def runs(self) -> dict[str, Files]:
        with self._asking():
            return self._listed()

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        with self._asking():
            self._make_ready()
        with self._asking(), self._connection.transaction():
            self._do("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", [run.run_id, _LOCK])
            if self._files(run.run_id) != (dict(instead_of) if instead_of is not None else None):
                return False
            for name, table in EVIDENCE_TABLES.items():
                self._do(f"DELETE FROM {_stored(name)} WHERE run_id = %s", [run.run_id])
                if name in run.tables:
                    self._copy_in(table, run.run_id, run.tables[name])
                    checked(table, self._copy_out(table, run.run_id), run.rows[name], f"{self.name}: run {run.run_id}")
            self._do(
                "INSERT INTO benchhouse_store.runs VALUES (%s, %s, %s, %s) ON CONFLICT (run_id) DO UPDATE SET "
                "schema_version = excluded.schema_version, files = excluded.files, rows = excluded.rows, "
                "pushed = now()",
                [run.run_id, SCHEMA_VERSION, json.dumps(run.files), json.dumps(run.rows)],
            )
        return True

    def read(self, run_id: str) -> RunTables:
        with self._asking(), self._connection.transaction():
            self._do("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found = self._rows(
                "SELECT schema_version, files, rows FROM benchhouse_store.runs WHERE run_id = %s", [run_id]
            )
            if not found:
                raise BenchError(
                    f"{self.name}: has no run {run_id}", "What it has: bench warehouse pull FROM --dry-run"
                )
            version, files, rows = found[0]
            need_version(version, self.name)
            where = f"{self.name}: run {run_id}"
            tables = {
                name: checked(EVIDENCE_TABLES[name], self._copy_out(EVIDENCE_TABLES[name], run_id), rows[name], where)
                for name in files
            }
        return RunTables(run_id, tables, files, rows)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        runs: Iterable[str] | None = None,
        name: str = "",
    ) -> Result:
        """`%(name)s` takes a parameter. Asked as a role that may only read the views, in a read-only transaction."""
        bare = _COMMENT.sub(" ", sql)
        if not _READS.match(bare):
            raise BenchError("only one SELECT at a time is answered: the warehouse is read, never written, by SQL")
        if found := _UNDRESSES.search(bare):
            raise BenchError(f"{found[0]}: not answered, for it could change who asks")
        given = dict(parameters or {})
        with self._asking(), self._connection.transaction(force_rollback=True):
            self._do("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            present = self._listed()
            refuse_mixed_units(sql, given, self._units)
            if self._rows("SELECT 1 FROM pg_roles WHERE rolname = %s AND pg_has_role(oid, 'MEMBER')", [ROLE]):
                self._do(f"SET LOCAL ROLE {ROLE}")
            self._do("SET LOCAL search_path = benchhouse, pg_catalog")
            cursor = self._connection.cursor()
            cursor.execute(sql, given or None, prepare=True)  # prepared: one statement, not two
            description = cursor.description or []
            rows = cursor.fetchall() if description else []
            types = tuple(column.type_display for column in description)
        spec = spec_of("postgresql", self._version(), name, sql, given, present, runs)
        return answer(rows, tuple(column.name for column in description), types, spec)

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
                options="-c TimeZone=UTC -c DateStyle=ISO,YMD",
            )  # fmt: skip
        except (psycopg.Error, UnicodeError) as error:
            words = self._blank(str(error).strip())
            raise BenchError(f"{self.name}: {words}", "Is it there, and is PGPASSWORD or the variable set?") from None

    @contextmanager
    def _asking(self) -> "Iterator[None]":
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            words = self._blank(str(error).strip()) or type(error).__name__
            raise BenchError(f"{self.name}: {words}", "Tables and columns: bench warehouse schema") from None

    def _blank(self, text: str) -> str:
        password = urlsplit(self._address).password
        return text.replace(password, "[redacted]") if password else text

    def _do(self, sql: str, values: "list[Any] | None" = None) -> None:
        self._connection.execute(sql, values)

    def _rows(self, sql: str, values: "list[Any] | None" = None) -> list[Any]:
        return self._connection.execute(sql, values).fetchall()

    def _version(self) -> str:
        return str(self._connection.info.parameter_status("server_version"))

    def _exists(self) -> bool:
        return self._rows("SELECT to_regclass('benchhouse_store.runs')")[0][0] is not None

    def _listed(self) -> dict[str, Files]:
        if not self._exists():
            return {}
        need_version(self._rows("SELECT schema_version FROM benchhouse_store.layout")[0][0], self.name)
        return dict(self._rows("SELECT run_id, files FROM benchhouse_store.runs ORDER BY run_id"))

    def _files(self, run_id: str) -> dict[str, str] | None:
        found = self._rows("SELECT files FROM benchhouse_store.runs WHERE run_id = %s", [run_id])
        return dict(found[0][0]) if found else None

    def _units(self) -> dict[str, dict[str, str]]:
        if not self._exists():
            return {}
        found: dict[str, dict[str, str]] = {}
        several = "SELECT metric FROM {0} GROUP BY metric HAVING count(DISTINCT unit) > 1"
        sql = "SELECT metric, unit, max(run_id) FROM {0} WHERE metric IN (" + several + ") GROUP BY 1, 2 ORDER BY 3"
        for metric, unit, run in self._rows(sql.format(_stored(MEASUREMENT_FACT.name))):
            found.setdefault(metric, {})[unit] = run
        return found

    def _make_ready(self) -> None:
        """Make the schemas, or add what a newer version of the tables has; one process at a time."""
        if self._ready:
            return
        with self._connection.transaction():
            self._do("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            found = self._rows("SELECT schema_version FROM benchhouse_store.layout") if self._exists() else []
            if found:
                need_version(found[0][0], self.name)
            if not found or found[0][0] < SCHEMA_VERSION:
                self._make_tables()
            elif self._rows("SELECT to_regclass('benchhouse.points')")[0][0] is None:  # made before there was one
                self._make_view()
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
        self._do(f"DROP VIEW IF EXISTS benchhouse.{POINTS_VIEW.name}")  # which stands on those of the tables
        for table in EVIDENCE_TABLES.values():
            stored = _stored(table.name)
            columns = [f"{quoted(column.name)} {_TYPES[column.kind]}" for column in table.columns]
            self._do(f"CREATE TABLE IF NOT EXISTS {stored} (_row bigint NOT NULL, {', '.join(columns)})")
            self._do(f"ALTER TABLE {stored} {', '.join(f'ADD COLUMN IF NOT EXISTS {one}' for one in columns)}")
            self._do(f"CREATE INDEX IF NOT EXISTS {quoted(table.name + '_by_run')} ON {stored} (run_id, _row)")
            self._do(f"DROP VIEW IF EXISTS benchhouse.{quoted(table.name)}")
            self._do(f"CREATE VIEW benchhouse.{quoted(table.name)} AS {_shown(table)}")
        self._make_view()
        self._do("DELETE FROM benchhouse_store.layout")
        self._do("INSERT INTO benchhouse_store.layout VALUES (%s)", [SCHEMA_VERSION])

    def _make_view(self) -> None:
        self._do(f"CREATE VIEW benchhouse.{POINTS_VIEW.name} AS {postgres_view()}")
        self._let_readers_in()

    def _let_readers_in(self) -> None:
        """Where this user may not make roles, an administrator may: the transaction is read-only in any case."""
        import psycopg

        try:
            with self._connection.transaction():
                if not self._rows("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]):
                    self._do(f"CREATE ROLE {ROLE} NOLOGIN")
                self._do(f"GRANT USAGE ON SCHEMA benchhouse TO {ROLE}")
                self._do(f"GRANT SELECT ON ALL TABLES IN SCHEMA benchhouse TO {ROLE}")
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation, psycopg.errors.DuplicateObject):
            return

    def _copy_in(self, table: Table, run_id: str, content: "pa.Table") -> None:
        names = ", ".join(["_row", *(quoted(column.name) for column in table.columns)])
        sql = f"COPY {_stored(table.name)} ({names}) FROM STDIN (FORMAT csv)"
        with self._connection.cursor().copy(sql) as copy:
            copy.write(_csv(table, run_id, content))

    def _copy_out(self, table: Table, run_id: str) -> "pa.Table":
        """The rows of a run, in their order, with their types."""
        from psycopg import sql as compose

        names = ", ".join(
            f"to_json({quoted(column.name)})" if column.kind == "texts" else quoted(column.name)
            for column in table.columns
        )
        select = f"COPY (SELECT {names} FROM {_stored(table.name)} WHERE run_id = "
        asked = compose.SQL(select) + compose.Literal(run_id)
        with self._connection.cursor().copy(asked + compose.SQL(" ORDER BY _row) TO STDOUT (FORMAT csv)")) as copy:
            text = b"".join(bytes(piece) for piece in copy)
        return _from_csv(table, text)


def _stored(table: str) -> str:
    return f"benchhouse_store.{quoted(table)}"


def _shown(table: Table) -> str:
    """A SELECT of what people see; of a dimension's rows with one key, the first run's."""
    names = ", ".join(quoted(column.name) for column in table.columns)
    if not table.key:
        return f"SELECT {names} FROM {_stored(table.name)}"
    key = ", ".join(map(quoted, table.key))
    return f"SELECT DISTINCT ON ({key}) {names} FROM {_stored(table.name)} ORDER BY {key}, run_id, _row"


def _csv(table: Table, run_id: str, content: "pa.Table") -> bytes:
    """As COPY reads it: null is nothing at all, an empty text is a pair of quotes."""
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
    parts = ["NULL" if one is None else '"' + re.sub(r'(["\\])', r"\\\1", one) + '"' for one in values]
    return "{" + ",".join(parts) + "}"


def _from_csv(table: Table, text: bytes) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv as pc

    schema = table.schema()
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
            lists = [None if one is None else json.loads(one) for one in values.to_pylist()]
            values = pa.array(lists, field.type)
        columns.append(values)
    return pa.Table.from_arrays(columns, schema=schema)
