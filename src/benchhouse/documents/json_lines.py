"""A large file of one JSON object a line, as Arrow batches of those fields alone that somebody asks for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchhouse.documents.foreign_file import ForeignFile

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 20_000  # of a batch
_MOST_LINE = 1 << 20


def batches(file: ForeignFile, select: str, types: str) -> Iterator["pa.RecordBatch"]:
    """`select` and `types` are SQL of DuckDB, whose reader takes half the CPU time of pyarrow's: what to take of each
    line, and the type of each of its keys. Lines come in the order of the file. What is not there is null, and numbers
    may be infinite or NaN."""
    import duckdb

    packing = "gzip" if file.packed else "uncompressed"
    if file.packed:
        _unpack(file)  # DuckDB has no limit for what comes out of it
    # By descriptor: DuckDB takes `*` and `[` of a name for a pattern.
    with file.path.open("rb") as opened, duckdb.connect(config={"threads": 1}) as connection:
        read = f"read_json('/dev/fd/{opened.fileno()}', columns = {types}, compression = '{packing}',"
        query = f"SELECT {select} FROM {read} format = 'newline_delimited', maximum_object_size = {_MOST_LINE})"  # noqa: S608
        try:
            yield from connection.sql(query).to_arrow_reader(_ROWS)
        except (duckdb.Error, OSError) as error:  # the second by way of Arrow
            for number, line in file.lines():  # which counts lines, as DuckDB does not always
                file.decode(line, number)
            file.problem(str(error).split("\n", 1)[0])


def _unpack(file: ForeignFile) -> None:
    with file.open() as stream:
        while stream.read(1 << 20):
            pass
