"""ClickHouse in a folder: no transactions, and yet a run is there whole or not at all; its quantiles are pinned."""

import subprocess
import sys

import pytest
from engines_at_hand import filled
from services.on_demand import provide

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse import engine_clickhouse
from benchhouse.warehouse.engine_clickhouse import ClickHouseEngine
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.transfer import open_engine, transfer

HOLD = """
import sys
from pathlib import Path
from benchhouse.warehouse.engine_clickhouse import _locked
lock = _locked(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _chdb():
    provide("clickhouse", "chdb")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("source") / "ws")


@pytest.fixture
def engine(tmp_path):
    opened = ClickHouseEngine(tmp_path / "ch")
    yield opened
    opened.close()


def test_an_interrupted_push_is_never_seen_and_the_next_removes_it(source, engine, monkeypatch):
    lake = LakeEngine(source)
    real, seen = ClickHouseEngine._insert, []

    def breaks(self, table, mark, content):
        seen.append(table.name)
        if len(seen) == 4:
            raise KeyboardInterrupt
        real(self, table, mark, content)

    with monkeypatch.context() as patch:
        patch.setattr(ClickHouseEngine, "_insert", breaks)
        with pytest.raises(KeyboardInterrupt):
            transfer(lake, engine, ["run-a"])
    assert engine.runs() == {}
    assert engine.query(f"SELECT count() AS n FROM {seen[0]}").rows == [(0,)]
    assert engine.query(f"SELECT count() > 0 AS n FROM benchhouse_store.{seen[0]}").rows == [(1,)]

    transfer(lake, engine, ["run-a"])
    lake.close()
    for table in engine.runs()["run-a"]:
        kept, shown = (engine.query(f"SELECT count() AS n FROM {at}{table}").rows for at in ("benchhouse_store.", ""))
        assert kept == shown
    assert not list(engine._folder.glob(".incoming*"))


def test_questions_reach_no_file_and_no_network(engine, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    out = tmp_path / "out.txt"
    for sql in (
        f"SELECT file('{secret}')",
        f"SELECT arrayMap(file, ['{secret}'])",
        f"SELECT `f\\x69le`('{secret}')",
        f"SELECT * APPLY(file) FROM (SELECT '{secret}' AS x)",
        f"SELECT * FROM file('{secret}', LineAsString)",
        "SELECT * FROM url('http://127.0.0.1:1/', LineAsString, 'a String')",
        "SELECT * FROM s3('http://127.0.0.1:1/bucket/key', 'CSV', 'a String')",
        "SELECT * FROM remote('127.0.0.1', system.one)",
        "SELECT 1 SETTINGS readonly = 0",
        f"SELECT 1 INTO OUTFILE '{out}'",
        f"SELECT 1) INTO OUTFILE '{out}' --",
        "SELECT 1 FORMAT CSV",
    ):
        with pytest.raises(BenchError):
            engine.query(sql)
    assert not out.exists()
    assert engine.query("SELECT 'file(x), settings' AS text -- why").rows == [("file(x), settings",)]


def test_the_pinned_quantile_is_not_what_clickhouse_calls_a_median(source, engine):
    lake = LakeEngine(source)
    transfer(lake, engine)
    two = """FROM measurement_fact WHERE metric = 'qps' AND unit = '1/s' AND repetition <= 2 AND run_id = 'run-a'
             AND NOT warmup AND "window" = ''"""
    median = lake.query(f'SELECT median("value") AS m {two}').rows
    lake.close()
    assert engine.query(f"SELECT quantileExactInclusive(0.5)(value) AS m {two}").rows == median
    assert engine.query(f"SELECT medianExact(value) AS m {two}").rows != median


def test_who_finds_the_folder_held_waits_and_then_says_so(tmp_path, monkeypatch):
    folder = tmp_path / "ch"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder / ".benchhouse.lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(engine_clickhouse, "WAIT_S", 0.2)
        with pytest.raises(BenchError, match="another process has held it"):
            open_engine(f"clickhouse:{folder}")
        holder.stdin.close()
    monkeypatch.undo()
    open_engine(f"clickhouse:{folder}").close()


def test_tables_of_a_newer_version_are_refused(tmp_path):
    engine = ClickHouseEngine(tmp_path / "ch")
    engine._do("INSERT INTO benchhouse_store.layout VALUES (99)")
    engine.close()
    with pytest.raises(BenchError, match="tables of schema version 99"):
        ClickHouseEngine(tmp_path / "ch")
