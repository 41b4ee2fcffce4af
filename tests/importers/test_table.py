"""Tables of any tool: what their settings are, and what is refused."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from benchhouse.catalog.entries import plug
from benchhouse.documents.foreign_file import ForeignFile
from benchhouse.runs.imports import read
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import ImportedReading
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
    cases = ImportedReading.model_validate_json(folder.reading.read_bytes()).cases
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


def test_a_parquet_file_whose_texts_would_fill_the_memory_is_refused(mapping, tmp_path):
    path = tmp_path / "bomb.parquet"
    text = pa.array(["a" * 1_000_000])
    rows = pa.table({"v": text.take(pa.array([0] * 200)), "x": pa.repeat(1.0, 200)})
    parquet.write_table(rows, path, compression="zstd")
    assert path.stat().st_size < 10_000
    with pytest.raises(BenchError, match="v: a text of more than 4096 bytes"):
        read(WorkspaceFolder(tmp_path), path, "table", mapping)
    parquet.write_table(rows, path, compression="zstd", use_dictionary=False)
    with pytest.raises(BenchError, match="too many for so small a file"):
        read(WorkspaceFolder(tmp_path), path, "table", mapping)


def test_a_column_that_differs_in_every_row_is_no_setting(mapping, monkeypatch, tmp_path):
    monkeypatch.setattr("benchhouse.importers.table._MOST_CASES", 3)
    path = tmp_path / "table.csv"
    path.write_text("v,x\n1,1\n2,1\n3,1\n3,2\n")
    assert len(plug("importers", "table").read(ForeignFile(path, mapping)).cases) == 3
    path.write_text("v,x\n1,1\n2,1\n3,1\n4,2\n")
    with pytest.raises(BenchError, match="more than 3 cases: does one of v differ in every row"):
        read(WorkspaceFolder(tmp_path), path, "table", mapping)
    assert not (tmp_path / ".bench").exists()


def test_rows_without_a_value_are_counted_and_told(mapping, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("v,x\n1,1\n1,\n1,3\n2,5\n")
    first, second = plug("importers", "table").read(ForeignFile(path, mapping)).cases
    assert list(first.samples[0].values) == [1, 3] and first.facts == {"empty_cells": {"x_ms": 1}}
    assert first.missing == {"x_ms@t of some rows": "their cells are empty"}
    assert not second.missing and not second.facts


def test_a_mapping_is_for_a_table(mapping, data, tmp_path):
    with pytest.raises(BenchError, match="says itself what is in it"):
        read(WorkspaceFolder(tmp_path), data / "hyperfine-1.15.0.json", "hyperfine", mapping)
