"""Arrow columns without pandas."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from tables import check_table

from benchhouse.warehouse.columns import chained, column, records

NOW = datetime(2026, 11, 15, 10, 30, 1, 234_567)


@check_table(
    "kind, values",
    [
        (pa.string(), ["a", "", None, "grüße", "b" * 300]),
        (pa.string(), []),
        (pa.int64(), [1, None, -(2**63), 2**63 - 1]),
        (pa.float64(), [0.1, None, -1e300, 3]),
        (pa.bool_(), [True, False, None] * 7),
        (pa.timestamp("ms"), [datetime(1969, 12, 31, 23, 59), None, NOW.replace(microsecond=234_000)]),
        (pa.list_(pa.string()), [["a", "b"], [], None, ["c"]]),
        (pa.list_(pa.string()), [None, None]),
    ],
)
def test_a_column_is_the_one_that_pyarrow_makes(kind, values):
    made = column(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, type=kind))


def test_a_time_is_cut_to_milliseconds_and_turned_to_utc():
    east = NOW.replace(tzinfo=timezone(timedelta(hours=2)))
    (told,) = column([east], pa.timestamp("ms")).to_pylist()
    assert told == east.astimezone(UTC).replace(tzinfo=None, microsecond=234_000)


@check_table("kind, value", [(pa.int64(), 2**63), (pa.int64(), "1"), (pa.string(), 5)])
def test_a_value_of_another_kind_is_refused(kind, value):
    with pytest.raises((TypeError, OverflowError, AttributeError)):
        column([value], kind)


def test_writing_a_table_does_not_import_pandas():
    code = (
        "import sys\n"
        "from benchhouse.warehouse.lake import encode\n"
        "from benchhouse.warehouse.run_tables import TRIAL_FACT\n"
        "row = dict.fromkeys(column.name for column in TRIAL_FACT.columns)\n"
        "assert encode(TRIAL_FACT, [row]).startswith(b'PAR1')\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@check_table("parts", [[[1.5, 2.0], [3.0]], [[1.5, None], [3.0]], [[], []]])
def test_lists_are_chained_to_one_column(parts):
    assert chained(parts, pa.float64()).to_pylist() == [value for part in parts for value in part]


def test_rows_become_a_table():
    schema = pa.schema([("name", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = [{"name": "a", "n": 1, "tags": ["x"], "more": 0}, {"name": None, "n": None, "tags": [], "more": 0}]
    assert records(rows, schema).to_pylist() == [{key: row[key] for key in schema.names} for row in rows]
    with pytest.raises(KeyError, match="tags"):
        records([{"name": "a", "n": 1}], schema)
    with pytest.raises(TypeError):
        records([{"name": "a", "n": "one", "tags": []}], schema)
