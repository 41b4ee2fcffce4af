"""The definition of a curated table: columns with a type and a description, a grain, and the source of its rows.

A table of evidence is made from sealed trials, one Parquet file per run. A table with a `source` is read directly from
JSON files of the workspace: accepted levels, published values, alarms.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 8
Kind = Literal["text", "texts", "integer", "number", "numbers", "truth", "time"]
Row = dict[str, Any]

_FILE, _FILENAME = "<file>", "read_from"
_SQL_TYPES: dict[Kind, str] = {
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "numbers": "DOUBLE[]",
    "truth": "BOOLEAN",
    "time": "TIMESTAMP",
}


@dataclass(frozen=True)
class Column:
    """One column; a `time` is UTC with milliseconds and carries no zone.

    `path` is for tables with a `source`: the position of the value in the JSON, if it is not a key with the column's
    name (`interval[0]`, `trials[*].run_id`); `<file>` is the name of the file without its extension.
    """

    name: str
    kind: Kind
    description: str
    path: str = ""

    @property
    def sql_type(self) -> str:
        return _SQL_TYPES[self.kind]


@dataclass(frozen=True)
class Table:
    """One curated table; `order` sorts its rows, so that equal evidence gives equal bytes.

    `key` is for dimensions: every run has its own copy of a row, and SQL sees one per key, the first run's. `source` is
    for tables that are not made from evidence: a pattern of files below the workspace, each with one JSON object or one
    per line, whose keys are the columns; missing keys are null, additional ones are not shown.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    grain: str = ""
    key: tuple[str, ...] = ()
    source: str = ""

    def empty_sql(self) -> str:
        """Return a SELECT of no rows with this table's columns and types."""
        nulls = ", ".join(f"NULL::{column.sql_type} AS {quoted(column.name)}" for column in self.columns)
        return f"SELECT {nulls} WHERE false"

    def sql_over(self, files: str, *, older: bool = False) -> str:
        """Return a SELECT of the rows in `files`, a non-empty list in SQL. `older` files may lack columns."""
        if self.source:
            return self._sql_over_json(files)
        some = f"SELECT * FROM read_parquet({files})"  # noqa: S608 - quoted by the caller
        if older:
            whole = f"SELECT * FROM read_parquet({files}, union_by_name = true)"  # noqa: S608 - as above
            some = f"SELECT * FROM ({self.empty_sql()} UNION ALL BY NAME {whole})"  # noqa: S608 - as above
        if not self.key:
            return some
        parts = ", ".join(map(quoted, self.key))
        return f"{some} QUALIFY row_number() OVER (PARTITION BY {parts} ORDER BY run_id) = 1"

    def _sql_over_json(self, files: str) -> str:
        kinds: dict[str, str] = {}
        shown = []
        for column in self.columns:
            key, _, inside = column.path.partition("[")
            if column.path == _FILE:
                value = f"parse_filename({_FILENAME}, true)"
            elif inside:
                kinds[key] = "JSON"
                value = f"CAST(json_extract({quoted(key)}, '$[{inside}') AS {column.sql_type})"
            else:
                kinds.setdefault(column.name, "VARCHAR" if column.kind == "time" else column.sql_type)
                value = quoted(column.name)
            if column.kind == "time":
                value = f"CAST({value} AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"
            shown.append(f"{value} AS {quoted(column.name)}")
        columns = ", ".join(f"{quoted(key)}: '{kind}'" for key, kind in kinds.items())
        named = f", filename = '{_FILENAME}'" if any(column.path == _FILE for column in self.columns) else ""
        # A kill may leave a partial line in a journal: the lines after it still count.
        form = "'nd', ignore_errors = true" if self.source.endswith(".jsonl") else "'auto'"
        read = f"read_json({files}, columns = {{{columns}}}, format = {form}{named})"
        whole = f" WHERE {quoted(self.order[0])} IS NOT NULL" if self.source.endswith(".jsonl") else ""
        return f"SELECT {', '.join(shown)} FROM {read}{whole}"  # noqa: S608 - ours

    @cached_property
    def schema(self) -> "pa.Schema":
        """The pyarrow schema, with table name and schema_version in its metadata."""
        import pyarrow as pa

        types = {
            "text": pa.string(),
            "texts": pa.list_(pa.string()),
            "integer": pa.int64(),
            "number": pa.float64(),
            "numbers": pa.list_(pa.float64()),
            "truth": pa.bool_(),
            "time": pa.timestamp("ms"),
        }
        fields = [
            pa.field(column.name, types[column.kind], metadata={"description": column.description})
            for column in self.columns
        ]
        metadata = {"benchhouse.table": self.name, "benchhouse.schema_version": str(SCHEMA_VERSION)}
        return pa.schema(fields, metadata=metadata)


def quoted(name: str) -> str:
    """Quote a column name for SQL, because it may be a keyword such as `window`."""
    return '"' + name.replace('"', '""') + '"'
