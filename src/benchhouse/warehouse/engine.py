"""One interface to all that can hold the curated tables: which runs it has, write one, read one, answer a question.

A run travels whole, as Arrow tables with two digests each: of the Parquet file in the lake that it began as, and of the
rows themselves, whatever the engine keeps them in. An engine proves both before it says that it has a run.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import Workspace
from benchhouse.schema.query import QueryInput, QuerySpec
from benchhouse.warehouse.query import Result, _plain, _tables_in
from benchhouse.warehouse.table import SCHEMA_VERSION, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

Files = Mapping[str, str]
"""A run as an engine has it: table to the sha256 of its Parquet file."""

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+]*):", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))")


@dataclass(frozen=True)
class RunTables:
    """All tables of one run, in the order of their rows in the lake.

    `files` and `rows` are digests by table. `parquet` has the bytes themselves where they come from a lake.
    """

    run_id: str
    tables: dict[str, "pa.Table"]
    files: dict[str, str]
    rows: dict[str, str]
    parquet: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(one.num_rows for one in self.tables.values())


class Engine(Protocol):
    """What holds the tables of many runs, for one team or one person."""

    @property
    def name(self) -> str:
        """For people, without a password."""
        ...

    def runs(self) -> dict[str, Files]:
        """Every run it holds."""
        ...

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        """Make these the run's tables, all or none, if it still has `instead_of` of it (None: nothing).

        False means that somebody else was faster: look again. Nobody ever sees a part.
        """
        ...

    def read(self, run_id: str) -> RunTables:
        """A run as it was written; raises BenchError where a digest does not fit."""
        ...

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        runs: Iterable[str] | None = None,
        name: str = "",
    ) -> Result:
        """Answer one SELECT in the engine's own dialect; nothing can be written by it, and no file read.

        `runs` are those that it is about, where that is known; the embedded engine reads the files of no others.
        """
        ...

    def close(self) -> None: ...


def open_engine(address: str, environ: Mapping[str, str] = os.environ) -> Engine:
    """The engine at an address: `postgresql://...`, `clickhouse:FOLDER`, or the folder of another workspace.

    `$NAME` as a whole address, or as its password, is the value of that variable.
    """
    given, from_variable = _expanded(address, environ)
    scheme = match["scheme"].lower() if (match := _SCHEME.match(given)) else ""
    if scheme in ("postgresql", "postgres"):
        from benchhouse.warehouse.engine_postgres import PostgresEngine

        return PostgresEngine(_with_password(given, environ, literal=from_variable))
    if scheme == "clickhouse":
        from benchhouse.warehouse.engine_clickhouse import ClickHouseEngine

        return ClickHouseEngine(_folder(given.partition(":")[2]))
    if scheme:
        raise BenchError(
            f"{scheme}: no engine of that kind",
            "There are: postgresql://user@host/database, clickhouse:FOLDER, and the folder of another workspace.",
        )
    from benchhouse.warehouse.engine_lake import LakeEngine

    root = Path(given).expanduser()
    if not root.is_dir():
        raise BenchError(f"{given}: no such folder", f"A new workspace may be empty: mkdir {given}")
    return LakeEngine(Workspace(root.resolve()))


def rows_digest(table: Table, content: "pa.Table") -> str:
    """sha256 of the rows themselves: names, kinds, nulls and values, in order, whatever they were stored in."""
    sha256 = hashlib.sha256()
    for column in table.columns:
        sha256.update(f"{column.name} {column.kind} {content.num_rows}\n".encode())
        _add(sha256, content.column(column.name))
    return sha256.hexdigest()


def checked(table: Table, content: "pa.Table", expected: str, where: str) -> "pa.Table":
    """`content`, if its rows are those of the digest."""
    found = rows_digest(table, content)
    if found != expected:
        raise BenchError(
            f"{where}: the rows of {table.name} have changed since they were written: sha256 {found[:12]}, "
            f"expected {expected[:12]}",
            "Push the run again from where its evidence is: bench warehouse push TO --run RUN --replace",
        )
    return content


def answer(rows: list[tuple[Any, ...]], columns: tuple[str, ...], types: tuple[str, ...], spec: QuerySpec) -> Result:
    """Rows as the embedded engine gives them: ready for JSON."""
    return Result(columns, types, [tuple(_plain(value) for value in row) for row in rows], spec)


def spec_of(
    engine: str,
    version: str,
    name: str,
    sql: str,
    parameters: Mapping[str, Any],
    runs: Mapping[str, Files],
    about: Iterable[str] | None,
) -> QuerySpec:
    """How to ask again, with the digests of all that the question is about."""
    named = set(runs if about is None else about)
    wanted = [table for table in _tables_in(sql) if table in EVIDENCE_TABLES]
    inputs = [
        QueryInput(
            table=table, run_id=run_id, file=f"{table}/{run_id}-{files[table][:12]}.parquet", sha256=files[table]
        )
        for table in wanted
        for run_id, files in sorted(runs.items())
        if table in files and run_id in named
    ]
    return QuerySpec(
        name=name, sql=sql, parameters=dict(parameters), engine=engine, engine_version=version, inputs=inputs
    )


def need_version(found: int, where: str) -> None:
    """Raises where the tables were made by a newer benchhouse."""
    if found > SCHEMA_VERSION:
        raise BenchError(
            f"{where}: tables of schema version {found}, but this benchhouse knows {SCHEMA_VERSION}",
            "Use the newer benchhouse that made them.",
        )


def _add(sha256: "hashlib._Hash", column: "pa.ChunkedArray") -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = column.combine_chunks()
    array = plain if isinstance(plain, pa.Array) else pa.concat_arrays(plain.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    sha256.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(array.type):
        sha256.update(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).tobytes())
        _add(sha256, pa.chunked_array([array.flatten()], type=array.type.value_type))
    elif pa.types.is_string(array.type):
        filled = pc.fill_null(array, "")
        sha256.update(pc.binary_length(filled).to_numpy(zero_copy_only=False).tobytes())
        offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1]
        if len(filled) and filled.buffers()[2] is not None:
            sha256.update(memoryview(filled.buffers()[2])[offsets[0] : offsets[-1]])
    else:
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms")).cast(pa.int64())
        elif pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "f":
            numbers = np.where(np.isnan(numbers), np.nan, numbers)  # of its many bit patterns, one
        sha256.update(np.ascontiguousarray(numbers).tobytes())


def _expanded(address: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    match = _VARIABLE.fullmatch(address)
    return (_value(match, environ), True) if match else (address, False)


def _with_password(address: str, environ: Mapping[str, str], *, literal: bool) -> str:
    """The address with its password in place of the variable that names it."""
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError as error:
        raise BenchError("that is not an address", "postgresql://user@host/database") from error
    if not password or literal:
        return address
    match = _VARIABLE.fullmatch(password)
    if match is None:
        raise BenchError(
            "a password in the address is seen by everyone on this machine, and kept by the shell",
            "Name a variable that has it, 'postgresql://user:$NAME@host/database', or set PGPASSWORD.",
        )
    host = parts.netloc.rpartition("@")[2]
    safe = f"{quote(parts.username or '', safe='%')}:{quote(_value(match, environ), safe='')}@{host}"
    return urlunsplit(parts._replace(netloc=safe))


def _value(match: "re.Match[str]", environ: Mapping[str, str]) -> str:
    name = match["braced"] or match["bare"]
    if not environ.get(name):
        raise BenchError(f"the variable {name} is not set", f"export {name}=...")
    return environ[name]


def _folder(text: str) -> Path:
    if not text or text.startswith("//"):
        raise BenchError(
            "ClickHouse is kept in a folder here (chdb), not asked over a network",
            "clickhouse:FOLDER, as clickhouse:ch",
        )
    return Path(text).expanduser().resolve()
