"""Parquet without Arrow: Arrow, DuckDB and chDB read what was written."""

import io
import subprocess
import sys
from array import array
from datetime import UTC, datetime, timedelta, timezone

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchhouse.evidence.parquet import encode, encode_rows
from benchhouse.warehouse.tables import TRIAL_FACT

NOW = datetime(2026, 11, 15, 10, 30, 1, 234_000)
VALUES = {
    "text": ["a", "", None, "grüße", "a", "b" * 300, "\x00"],
    "texts": [["a", "b"], [], None, ["c"], ["a", None, "a"], [""], []],
    "integer": [1, None, -(2**63), 2**63 - 1, 0, 0, None],
    "number": [0.1, None, -1e300, 3, float("inf"), -0.0, 5e-324],
    "truth": [True, False, None, True, True, True, False],
    "time": [datetime(1969, 12, 31, 23, 59), None, NOW, NOW, NOW, NOW, NOW],
}
KINDS = {f"a {kind}": kind for kind in VALUES}
ARROW = {
    "text": pa.string(), "texts": pa.list_(pa.string()), "integer": pa.int64(), "number": pa.float64(),
    "truth": pa.bool_(), "time": pa.timestamp("ms"),
}  # fmt: skip


def rows_of(values):
    return [dict(zip(KINDS, row, strict=True)) for row in zip(*values.values(), strict=True)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_arrow_reads_the_rows_that_were_written_with_types_and_metadata(count):
    rows = rows_of(VALUES)[:count]
    found = pq.read_table(io.BytesIO(encode_rows(KINDS, rows, {"who": "we"})))
    found.validate(full=True)
    assert found.to_pylist() == rows
    assert found.schema.equals(pa.schema([(name, ARROW[kind]) for name, kind in KINDS.items()]))
    assert found.schema.metadata[b"who"] == b"we"


@pytest.mark.parametrize("count", [0, 1, 7])
def test_duckdb_reads_them(count, tmp_path):
    rows = rows_of(VALUES)[:count]
    path = tmp_path / "t.parquet"
    path.write_bytes(encode_rows(KINDS, rows, {}))
    found = duckdb.sql(f"SELECT * FROM '{path}'")
    assert [dict(zip(KINDS, row, strict=True)) for row in found.fetchall()] == rows
    assert [str(kind) for kind in found.types] == ["VARCHAR", "VARCHAR[]", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"]


def test_clickhouse_reads_them(tmp_path):
    chdb = pytest.importorskip("chdb")
    path = tmp_path / "t.parquet"
    path.write_bytes(encode_rows(KINDS, rows_of(VALUES), {}))
    sql = f"SELECT `a text`, `a integer`, `a truth`, toString(`a time`) FROM file('{path}')"
    told = str(chdb.query(sql, "TabSeparated")).splitlines()
    assert told[0].split("\t") == ["a", "1", "true", "1969-12-31 23:59:00.000"]
    assert told[2].split("\t") == ["\\N", str(-(2**63)), "\\N", "2026-11-15 10:30:01.234"]


@pytest.mark.parametrize("distinct", [1, 2, 3, 255, 256, 257, 1000])
def test_a_dictionary_of_any_size_is_read_back(distinct):
    rows = [{"t": str(at % distinct), "n": at} for at in range(1000)]
    assert pq.read_table(io.BytesIO(encode_rows({"t": "text", "n": "integer"}, rows, {}))).to_pylist() == rows


def test_many_levels_are_read_back():
    rows = [{"t": None if at % 3 else "x", "l": [str(at)] * (at % 5)} for at in range(999)]
    assert pq.read_table(io.BytesIO(encode_rows({"t": "text", "l": "texts"}, rows, {}))).to_pylist() == rows


def test_a_time_is_cut_to_milliseconds_and_turned_to_utc():
    east = datetime(2026, 11, 15, 10, 30, 1, 234_567, timezone(timedelta(hours=2)))
    (row,) = pq.read_table(io.BytesIO(encode_rows({"t": "time"}, [{"t": east}], {}))).to_pylist()
    assert row["t"] == east.astimezone(UTC).replace(tzinfo=None, microsecond=234_000)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("integer", 2**63), ("integer", "1"), ("integer", 1.5), ("text", 5), ("number", "1"), ("time", 5), ("texts", [5])],
)
def test_a_value_of_another_kind_is_refused(kind, value):
    with pytest.raises((TypeError, OverflowError, AttributeError)):
        encode_rows({"c": kind}, [{"c": value}], {})


def test_a_row_without_a_column_is_refused():
    with pytest.raises(KeyError, match="b"):
        encode_rows({"a": "text", "b": "text"}, [{"a": "x"}], {})


def test_equal_rows_give_equal_bytes_of_a_size_that_repetition_hardly_adds_to():
    row = {column.name: "some text" if column.kind == "text" else None for column in TRIAL_FACT.columns}
    one, many = (encode_rows(TRIAL_FACT.kinds, [row] * count, TRIAL_FACT.metadata) for count in (1, 1000))
    assert many == encode_rows(TRIAL_FACT.kinds, [dict(row)] * 1000, TRIAL_FACT.metadata)
    assert len(many) < 1.1 * len(one)


def test_a_table_of_doubles_is_read_back():
    columns = {"t": array("d", [0.0, 1.0]), "cpu": array("d", [0.5, 2.5])}
    found = pq.read_table(io.BytesIO(encode(columns, {"scope": "node"})))
    assert found.to_pydict() == {"t": [0.0, 1.0], "cpu": [0.5, 2.5]}
    assert found.schema.metadata == {b"scope": b"node"}


def test_a_small_table_is_written_without_arrow_and_numpy():
    code = (
        "import sys\n"
        "from benchhouse.warehouse.lake import encode\n"
        "from benchhouse.warehouse.tables import TRIAL_FACT\n"
        "assert encode(TRIAL_FACT, [dict.fromkeys(TRIAL_FACT.kinds)]).startswith(b'PAR1')\n"
        "assert not {'pyarrow', 'numpy', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
