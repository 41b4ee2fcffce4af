"""Driver `pgvector`: a PostgreSQL table with the extension pgvector, and one connection per object."""

import contextlib
import math
import select
import struct
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, ClassVar

import numpy

from benchhouse.drivers import vector_shared as shared
from benchhouse.drivers.vector_shared import Ids, Vectors
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import not_connected
from benchhouse.load.protocols.vector import Collection, IndexKind, VectorStats
from benchhouse.schema.errors import BenchError

_OPERATORS = {"l2": ("<->", "vector_l2_ops"), "ip": ("<#>", "vector_ip_ops"), "cosine": ("<=>", "vector_cosine_ops")}
_COPY_BEGIN, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_ITERATIVE = (0, 8)  # the pgvector that continues searching if a filter leaves too few


class PgVector(shared.Driver):
    """A pgvector table. A search is a prepared statement with a binary vector and binary ids, called through libpq.

    The planner is kept from reading the whole table instead of the index, so that the requested index is measured.
    """

    indexes: ClassVar[tuple[IndexKind, ...]] = ("flat", "ivf", "hnsw")
    shared: ClassVar[bool] = False
    recipe: ClassVar[str] = "postgres"

    def __init__(self, endpoint: str, collection: Collection) -> None:
        shared.refuse_what_it_lacks(self, "pgvector", collection)
        self._psycopg = shared.library("psycopg", "pgvector")
        self._endpoint, self._collection = endpoint, collection
        self._made = self._made_extension = False
        self._connection: Any = None
        self._server = self._extension = ""
        self._head = struct.pack(">HH", collection.dimensions, 0)

    @property
    def version(self) -> str:
        return f"PostgreSQL {self._server}, pgvector {self._extension}"

    def open(self) -> None:
        psycopg = self._psycopg
        try:
            self._connection = psycopg.connect(
                self._endpoint,
                autocommit=True,
                connect_timeout=math.ceil(shared.CONNECT_S),
                application_name="benchhouse",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
            )
        except psycopg.ProgrammingError as error:
            raise BenchError(
                f"not a PostgreSQL address: {error}", hint="postgresql://user@host:5432/database"
            ) from error
        except psycopg.OperationalError as error:
            raise not_connected(str(error)) from error
        self._raw = self._connection.pgconn
        self._statements: dict[tuple[int, bool], bytes] = {}
        self._effort = 0
        self._poll = select.poll()
        self._poll.register(self._raw.socket, select.POLLIN)
        self._server, self._extension = self._versions()
        self._set_up()

    def _versions(self) -> tuple[str, str]:
        with self._named():
            row = self._connection.execute(
                "SELECT current_setting('server_version'), coalesce(installed_version, default_version) "
                "FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone()
        if row is None:
            raise BenchError(
                "this PostgreSQL has no pgvector",
                hint="install the extension on the server (Debian: postgresql-N-pgvector)",
            )
        return str(row[0]).split()[0], str(row[1])

    def _set_up(self) -> None:
        collection, settings = self._collection, {}
        iterative = tuple(int(part) for part in self._extension.split(".")[:2]) >= _ITERATIVE and collection.labels
        if collection.index == "ivf":
            settings["ivfflat.probes"] = str(collection.options["nprobe"])
            if iterative:
                settings["ivfflat.iterative_scan"] = "relaxed_order"
        elif collection.index == "hnsw":
            self._effort = collection.options["ef_search"]
            settings["hnsw.ef_search"] = str(self._effort)
            if iterative:
                settings["hnsw.iterative_scan"] = "strict_order"
        if collection.index != "flat":
            settings["enable_seqscan"] = "off"
        for name, value in settings.items():
            self._do("SELECT set_config(%s, %s, false)", [name, value])

    def create(self) -> None:
        there = self._fetch("SELECT count(*) FROM pg_extension WHERE extname = 'vector'")
        try:
            with self._named(), self._connection.transaction():
                if not there:
                    self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                columns = (
                    f"(id bigint PRIMARY KEY, label int NOT NULL, vector vector({int(self._collection.dimensions)}))"
                )
                self._connection.execute(self._sql("CREATE TABLE {table} " + columns))
        except CallFailed as failed:
            if isinstance(failed.__cause__, self._psycopg.errors.DuplicateTable):
                raise shared.refuse_existing("table", self._collection.name) from failed
            raise
        self._made, self._made_extension = True, not there

    def _insert(self, first: int, vectors: Vectors, labels: Ids | None) -> None:
        fields: list[Any] = [("fields", ">i2"), ("id_size", ">i4"), ("id", ">i8"), ("label_size", ">i4")]
        fields += [("label", ">i4"), ("size", ">i4"), ("dimensions", ">i2"), ("unused", ">i2")]
        rows = numpy.zeros(len(vectors), [*fields, ("vector", ">f4", (self._collection.dimensions,))])
        rows["fields"], rows["id_size"], rows["label_size"] = 3, 8, 4
        rows["size"], rows["dimensions"] = 4 + 4 * self._collection.dimensions, self._collection.dimensions
        rows["id"] = numpy.arange(first, first + len(vectors))
        rows["label"] = 0 if labels is None else labels
        rows["vector"] = vectors
        copy_in = self._sql("COPY {table} FROM STDIN (FORMAT BINARY)")
        with self._named(), self._connection.cursor() as cursor, cursor.copy(copy_in) as copy:
            copy.write(_COPY_BEGIN + rows.tobytes() + _COPY_END)

    def build(self) -> None:
        collection, operators = self._collection, _OPERATORS[self._collection.distance][1]
        if collection.labels:
            self._do(self._sql("CREATE INDEX ON {table} (label)"))
        if collection.index == "ivf":
            how = f"ivfflat (vector {operators}) WITH (lists = {int(collection.options['nlist'])})"
            self._do(self._sql("CREATE INDEX ON {table} USING " + how))
        elif collection.index == "hnsw":
            links, width = int(collection.options["m"]), int(collection.options["ef_construction"])
            how = f"hnsw (vector {operators}) WITH (m = {links}, ef_construction = {width})"
            self._do(self._sql("CREATE INDEX ON {table} USING " + how))
        self._do(self._sql("ANALYZE {table}"))

    def _search(self, queries: Vectors, k: int, below: int | None) -> Ids:
        if self._connection is None:  # the last search broke it
            self.open()
        statement = self._statements.get((k, below is not None)) or self._prepare(k, below is not None)
        chosen = [] if below is None else [struct.pack(">i", below)]
        rows = numpy.full((len(queries), k), -1, dtype=numpy.int64)
        for row, query in zip(rows, queries.astype(">f4"), strict=True):
            content = self._execute(statement, [self._head + query.tobytes(), *chosen])
            ids = numpy.frombuffer(content, [("size", ">i4"), ("id", ">i8")], offset=min(20, len(content)))["id"]
            row[: len(ids)] = ids
        return rows

    def _prepare(self, k: int, filtered: bool) -> bytes:
        """Prepare a search that returns one array of ids, which is read faster than k rows."""
        if 0 < self._effort < k:  # as other HNSW libraries do: fewer candidates than answers would give no full answer
            self._effort = k
            self._do("SELECT set_config('hnsw.ef_search', %s, false)", [str(k)])
        where = "WHERE label < $2::int " if filtered else ""
        order = f"ORDER BY vector {_OPERATORS[self._collection.distance][0]} $1::vector LIMIT {int(k)}"
        query = f"SELECT ARRAY(SELECT id FROM {{table}} {where}{order})"  # noqa: S608 - only our own words and numbers
        text = self._sql(query).as_string(self._connection)
        name = f"search_{k}_{filtered:d}".encode()
        self._ask(lambda: self._raw.send_prepare(name, text.encode()))
        self._statements[(k, filtered)] = name
        return name

    def _execute(self, statement: bytes, values: list[bytes]) -> bytes:
        formats = [1] * len(values)
        result = self._ask(lambda: self._raw.send_query_prepared(statement, values, formats, result_format=1))
        value: bytes = result.get_value(0, 0)
        return value

    def _ask(self, send: Callable[[], None]) -> Any:
        """Return the result of the request of `send`, with a time limit, which libpq's own wait does not have."""
        raw, deadline = self._raw, monotonic() + shared.ANSWER_S
        try:
            send()
            while True:
                if not self._poll.poll(max(deadline - monotonic(), 0) * 1000):
                    self.close()
                    raise CallFailed("timeout", f"no answer within {shared.ANSWER_S:g} s")
                raw.consume_input()
                if not raw.is_busy():
                    break
            result = raw.get_result()
            while raw.get_result():
                pass
        except self._psycopg.OperationalError as error:
            self.close()
            raise CallFailed("reset", str(error).strip()[:500]) from error
        if result.error_message:
            state = (result.error_field(self._psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
            message = result.error_message.decode(errors="replace").strip()
            failed = CallFailed(_kind(state), f"{state} {message}"[:500])
            if failed.kind == "reset":  # its last message: the server has closed the connection
                self.close()
            raise failed
        return result

    def stats(self) -> VectorStats:
        if self._connection is None:  # the connection was dropped
            self.open()
        name = self._sql("{table}").as_string(self._connection)
        size = self._fetch("SELECT pg_total_relation_size(%s::regclass)", [name])
        return VectorStats(self._fetch(self._sql("SELECT count(*) FROM {table}")), size)

    def delete(self) -> None:
        if not self._made:
            return
        if self._connection is None:
            self.open()
        self._do(self._sql("DROP TABLE IF EXISTS {table}"))
        self._made = False
        if self._made_extension:
            with contextlib.suppress(CallFailed):  # it stays if somebody else has started to use it
                self._do("DROP EXTENSION IF EXISTS vector")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _sql(self, text: str) -> Any:
        return self._psycopg.sql.SQL(text).format(table=self._psycopg.sql.Identifier(self._collection.name))

    def _do(self, query: Any, values: list[str] | None = None) -> None:
        with self._named():
            self._connection.execute(query, values)

    def _fetch(self, query: Any, values: list[str] | None = None) -> int:
        with self._named():
            return int(self._connection.execute(query, values).fetchone()[0])

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            state = error.sqlstate or ("" if not self._connection.closed else "08006")
            raise CallFailed(_kind(state), f"{state} {str(error).strip()}"[:500]) from error


def _kind(state: str) -> str:
    """Return the kind of a SQLSTATE: connection errors and shutdowns, canceled statements, everything else."""
    if state.startswith("08") or state in ("57P01", "57P02", "57P03"):
        return "reset"
    return "timeout" if state == "57014" else "server_error"
