"""The interface of all engines that hold the curated tables: list the runs, write and read a run, answer a query.

A run is transferred whole, as Arrow tables with two digests each: of its original Parquet file in the lake, and of the
rows themselves, which is the same in every engine. An engine verifies both before it lists a run.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from benchhouse.schema.errors import BenchError
from benchhouse.schema.names import can_name_a_folder
from benchhouse.schema.query import QueryInput, QuerySpec
from benchhouse.schema.quoting import quote
from benchhouse.warehouse.locked_engine import as_plain
from benchhouse.warehouse.query import Parameters, Result, Runs, tables_in
from benchhouse.warehouse.table import SCHEMA_VERSION, Table
from benchhouse.warehouse.tables import EVIDENCE_TABLES

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
Files = Mapping[str, str]
"""The files of a run in an engine: table to the sha256 of its Parquet file."""


@dataclass(frozen=True)
class RunTables:
    """All tables of one run, with their rows in the order of the lake.

    `files` and `rows` are digests by table. `parquet` has the original bytes if they come from a lake.
    """

    run_id: str
    tables: dict[str, "pa.Table"]
    files: dict[str, str]
    rows: dict[str, str]
    parquet: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(table.num_rows for table in self.tables.values())


class TableEngine(Protocol):
    """An engine that holds the tables of many runs, for a team or a person."""

    @property
    def name(self) -> str:
        """The name for people, without a password."""

    def runs(self) -> dict[str, Files]:
        """Return every run that the engine holds."""

    def write(self, run: RunTables, instead_of: Files | None) -> bool:
        """Replace the run's tables in one step, if the engine still has `instead_of` of it (None: nothing).

        Return False if another process was faster: read again. Readers never see a part of a run.
        """

    def read(self, run_id: str) -> RunTables:
        """Return a run as it was written. Raise BenchError if a digest does not match."""

    def query(self, sql: str, parameters: Parameters = None, *, runs: Runs = None, name: str = "") -> Result:
        """Answer one SELECT in the engine's own dialect; the query cannot write or read files.

        `runs` are the runs that the query is about, if known; the embedded engine reads only their files.
        """

    def close(self) -> None: ...


def rows_digest(table: Table, content: "pa.Table") -> str:
    """Return the sha256 of the rows: names, kinds, nulls, and values, in order, the same in every storage format."""
    sha256 = hashlib.sha256()
    for column in table.columns:
        sha256.update(f"{column.name} {column.kind} {content.num_rows}\n".encode())
        _add(sha256, content.column(column.name))
    return sha256.hexdigest()


def checked(table: Table, content: "pa.Table", expected: str, where: str) -> "pa.Table":
    """Return `content` if its rows match the digest. Raise BenchError otherwise."""
    actual = rows_digest(table, content)
    if actual != expected:
        raise BenchError(
            f"{where}: the rows of {table.name} have changed since they were written: sha256 {actual[:12]}, "
            f"expected {expected[:12]}",
            "Push the run again from where its evidence is: bench warehouse push TO --run RUN --replace",
        )
    return content


_DIGEST = re.compile(r"[0-9a-f]{64}")


def checked_files(engine: str, run_id: object, files: object) -> dict[str, str]:
    """Return the digests of a run's tables as an engine lists them; file names consist of these and of the run id.

    Raise BenchError if the id could lead out of a folder, or if a table or a digest is invalid.
    """
    try:
        can_name_a_folder(str(run_id))
        listed = dict(files) if isinstance(files, Mapping) else {"": ""}
        sound = all(name in EVIDENCE_TABLES and _DIGEST.fullmatch(digest) for name, digest in listed.items())
    except (ValueError, TypeError):
        sound = False
    if not sound:
        raise BenchError(
            f"{engine}: lists a run {quote(str(run_id)[:100])} that benchhouse can't have written",
            "check who may write there; other runs can be named with --run",
        )
    return listed


def read_run(
    engine: str, run_id: str, entry: tuple[int, Files, Files] | None, read_table: "Callable[[Table], pa.Table]"
) -> RunTables:
    """Return a run from its record in the engine: schema version, digests of files, and digests of rows."""
    if entry is None:
        raise BenchError(f"{engine}: has no run {run_id}", "What it has: bench warehouse pull FROM --dry-run")
    version, files, rows = entry
    if not isinstance(version, int):
        raise BenchError(f"{engine}: run {run_id} has the schema version {version!r}, which is not a number")
    need_version(version, engine)
    files, rows = checked_files(engine, run_id, files), checked_files(engine, run_id, rows)
    if files.keys() - rows.keys():
        raise BenchError(f"{engine}: run {run_id} has tables without the digest of their rows")
    where = f"{engine}: run {run_id}"
    tables = {
        name: checked(EVIDENCE_TABLES[name], read_table(EVIDENCE_TABLES[name]), rows[name], where) for name in files
    }
    return RunTables(run_id, tables, dict(files), dict(rows))


def answer(
    rows: Iterable[Row], columns: Sequence[tuple[str, str]], spec: QuerySpec, runs: Mapping[str, Files], about: Runs
) -> Result:
    """Return rows as the embedded engine does, ready for JSON; `columns` are names and types.

    The spec gets the digests of the engine's `runs` that the query is `about` (None: of all).
    """
    named = set(runs if about is None else about)
    inputs = [
        QueryInput(
            table=table, run_id=run_id, file=f"{table}/{run_id}-{files[table][:12]}.parquet", sha256=files[table]
        )
        for table in tables_in(spec.sql)
        for run_id, files in sorted(runs.items())
        if table in EVIDENCE_TABLES and table in files and run_id in named
    ]
    plain = [tuple(as_plain(value) for value in row) for row in rows]
    names, types = tuple(name for name, _ in columns), tuple(kind for _, kind in columns)
    return Result(names, types, plain, spec.model_copy(update={"inputs": inputs}))


def need_version(version: int, where: str) -> None:
    """Raise BenchError if a newer benchhouse made the tables."""
    if version > SCHEMA_VERSION:
        raise BenchError(
            f"{where}: tables of schema version {version}, but this benchhouse knows {SCHEMA_VERSION}",
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
            numbers = np.where(np.isnan(numbers), np.nan, numbers)  # its many bit patterns become one
        sha256.update(np.ascontiguousarray(numbers).tobytes())
