"""Tables of any tool: what their settings are, and what is refused."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchhouse.catalog.entries import plug
from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.runs.imports import read
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import Reading
from benchhouse.schema.layout import WorkspaceFolder


@pytest.fixture
def mapping(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text("tool: t\nsettings: [v]\nmetrics:\n  x_ms: {column: x, unit: ms}\n")
    return path


def test_cases_are_told_apart_by_what_stands_there(mapping, tmp_path):
    path = tmp_path / "table.csv"
    texts = ["7", "7.0", "007", "1.1", "1.10", "inf", "nan", "1_000", "1000", "1e3", "Infinity", "9" * 5000, "٣", ""]
    path.write_text("v,x\n" + "".join(f"{text},{at}\n" for at, text in enumerate(texts)))
    folder = read(WorkspaceFolder(tmp_path), path, None, mapping)
    cases = Reading.model_validate_json(folder.reading.read_bytes()).cases
    assert [list(case.series[0].values(folder.samples)) for case in cases] == [[at] for at in range(len(texts))]
    numbers = [case.settings["v"] for case in cases if isinstance(case.settings["v"], int | float)]
    assert numbers == [7, 1.1, 1000]


def test_a_heading_that_stands_twice_is_refused(mapping, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("v,x,x\n1,2,3\n")
    with pytest.raises(BenchError, match="two columns have the heading 'x'"):
        read(WorkspaceFolder(tmp_path), path, "table", mapping)


def test_settings_of_parquet_are_numbers_where_they_are_finite(mapping, tmp_path):
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"v": [1.0, 0.1 + 0.2, float("inf")], "x": [1, 2, 3]}), path)
    cases = plug("importers", "table").read(ForeignFile(path, mapping)).cases
    assert [case.settings["v"] for case in cases] == [1, 0.1 + 0.2, "inf"]


def test_a_parquet_bomb_is_refused(mapping, tmp_path):
    path = tmp_path / "bomb.parquet"
    rows = pa.table({"v": pa.array(["a"]).take(pa.array([0] * 1_000_000)), "x": pa.repeat(1.0, 1_000_000)})
    with parquet.ParquetWriter(path, rows.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(rows)
    assert path.stat().st_size < 200_000
    with pytest.raises(BenchError, match="10000000 rows in so small a file"):
        read(WorkspaceFolder(tmp_path), path, "table", mapping)


def test_a_mapping_is_for_a_table(mapping, data, tmp_path):
    with pytest.raises(BenchError, match="says itself what is in it"):
        read(WorkspaceFolder(tmp_path), data / "hyperfine-1.15.0.json", "hyperfine", mapping)
