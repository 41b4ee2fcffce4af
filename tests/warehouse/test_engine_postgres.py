"""PostgreSQL as a team's warehouse: many pushers, interrupted ones, older and newer tables, readers."""

import os
import signal
import threading
from datetime import datetime

import pyarrow as pa
import pytest
from engines_at_hand import filled, new_database
from services.postgres import Scissors, ask

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse.engine import RunTables, rows_digest
from benchhouse.warehouse.engine_lake import LakeEngine
from benchhouse.warehouse.engine_postgres import PostgresEngine
from benchhouse.warehouse.run_tables import TRIAL_FACT
from benchhouse.warehouse.tables import EVIDENCE_TABLES
from benchhouse.warehouse.transfer import open_engine, transfer


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("source") / "ws")


@pytest.fixture
def address(request):
    return new_database(request.getfixturevalue("postgres_server").endpoint)


def test_pushers_of_one_run_at_once_end_with_one_copy(source, address):
    results, barrier = [], threading.Barrier(4)

    def push():
        lake, engine = LakeEngine(source), open_engine(address)
        barrier.wait()
        results.append([one.what for one in transfer(lake, engine)])
        lake.close()
        engine.close()

    threads = [threading.Thread(target=push) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert sum(what.count("new") for what in results) == 2
    assert sum(what.count("same") for what in results) == 6
    assert ask(address, "SELECT run_id, count(*) FROM benchhouse.trial_fact GROUP BY 1 ORDER BY 1") == [
        ("run-a", 14),
        ("run-b", 14),
    ]


def test_a_push_that_is_cut_off_leaves_nothing_of_its_run(source, address):
    ready = open_engine(address)
    lake = LakeEngine(source)
    transfer(lake, ready, ["run-a"])
    proxy = Scissors(address, b'COPY benchhouse_store."measurement_fact"')
    cut = open_engine(proxy.endpoint)
    with pytest.raises(BenchError):
        transfer(lake, cut, ["run-b"])
    assert proxy.was_cut
    proxy.close()
    assert list(ready.runs()) == ["run-a"]
    for table in EVIDENCE_TABLES:
        rows = ask(address, f"SELECT DISTINCT run_id FROM benchhouse_store.{table}")
        assert rows in ([("run-a",)], [])
    assert [one.what for one in transfer(lake, ready)] == ["same", "new"]
    ready.close()
    lake.close()


def test_a_server_that_was_stopped_in_its_tracks_is_not_waited_for_for_ever(source, address):
    engine, lake = PostgresEngine(address, silence_s=1.0), LakeEngine(source)
    transfer(lake, engine, ["run-a"])
    database = address.rpartition("/")[2]
    own = f"datname = '{database}' AND application_name = 'benchhouse'"
    ((pid,),) = ask(address, f"SELECT pid FROM pg_stat_activity WHERE {own}")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(BenchError, match=r"no answer within 1 s"):
            engine.runs()
    finally:
        os.kill(pid, signal.SIGCONT)
    again = open_engine(address)
    assert list(again.runs()) == ["run-a"]
    for one in (engine, lake, again):
        one.close()


def test_a_changed_value_is_found_when_the_run_is_read(source, address, tmp_path):
    lake, engine = LakeEngine(source), open_engine(address)
    transfer(lake, engine)
    ask(address, "UPDATE benchhouse_store.measurement_fact SET value = value * 1.0000001 WHERE run_id = 'run-a'")
    home = open_engine(str(tmp_path))
    moved = transfer(engine, home)
    assert [(one.run_id, one.what) for one in moved] == [("run-a", "refused"), ("run-b", "new")]
    assert "the rows of measurement_fact have changed" in moved[0].reason
    for one in (lake, engine, home):
        one.close()


def test_tables_of_an_older_version_get_what_is_new_and_newer_ones_are_refused(source, address):
    lake, engine = LakeEngine(source), open_engine(address)
    transfer(lake, engine, ["run-a"])
    engine.close()
    ask(
        address,
        "DROP VIEW benchhouse.points",
        "DROP VIEW benchhouse.trial_fact",
        "ALTER TABLE benchhouse_store.trial_fact DROP COLUMN host",
        "UPDATE benchhouse_store.layout SET schema_version = 1",
    )
    engine = open_engine(address)
    transfer(lake, engine, ["run-b"])
    assert engine.query("SELECT DISTINCT run_id, host FROM trial_fact ORDER BY 1").rows == [
        ("run-a", None),
        ("run-b", "node1"),
    ]
    ask(address, "UPDATE benchhouse_store.layout SET schema_version = 99")
    for refused in (engine.runs, lambda: engine.query("SELECT 1")):
        with pytest.raises(BenchError, match="tables of schema version 99"):
            refused()
    engine.close()
    lake.close()


def test_every_type_comes_back_exactly(source, address):
    table = TRIAL_FACT
    values = {
        "text": ["", "x\ty\r\nz", '"', "\\N", "NULL", "ü🙂", "a,b"],
        "texts": [[], [""], ["a", 'b"\\{},'], ["NULL"], ["x\ny"], ["ü"], ["\\N"]],
        "integer": [0, -1, 2**63 - 1, -(2**63), 1, 2, 3],
        "number": [0.1 + 0.2, -0.0, 1e-308, 5e-324, float("inf"), float("nan"), 1.7976931348623157e308],
        "truth": [True, False, True, False, True, False, True],
        "time": [datetime(2026, 3, 1, 12, 0, 0, ms * 1000) for ms in (0, 1, 10, 100, 999, 500, 120)],
    }
    rows = [
        {column.name: None if at == 7 else values[column.kind][at] for column in table.columns} | {"run_id": "run-x"}
        for at in range(8)
    ]
    content = pa.Table.from_pylist(rows, schema=table.schema)
    run = RunTables("run-x", {table.name: content}, {table.name: "f" * 64}, {table.name: rows_digest(table, content)})
    engine = open_engine(address)
    assert engine.write(run, None)
    found = engine.read("run-x").tables[table.name]
    engine.close()
    assert rows_digest(table, found) == rows_digest(table, content)
    assert found.drop_columns(["duration_s"]).schema.equals(content.drop_columns(["duration_s"]).schema)


def test_a_character_that_postgresql_has_not_is_named(source, address):
    lake, engine = LakeEngine(source), open_engine(address)
    run = lake.read("run-a")
    at = run.tables["trial_fact"].schema.get_field_index("failure_message")
    texts = pa.array(["a\0b"] * run.tables["trial_fact"].num_rows)
    run.tables["trial_fact"] = run.tables["trial_fact"].set_column(at, "failure_message", texts)
    with pytest.raises(BenchError, match="run run-a: a text in trial_fact has a character of code zero"):
        engine.write(run, None)
    assert engine.runs() == {}
    engine.close()
    lake.close()


def test_a_question_can_read_the_tables_and_nothing_else(source, address):
    lake, engine = LakeEngine(source), open_engine(address)
    transfer(lake, engine, ["run-a"])
    lake.close()
    for sql in (
        "WITH gone AS (DELETE FROM trial_fact RETURNING 1) SELECT * FROM gone",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT set_config('role', 'none', true)",
        "SELECT U&\"set\\005Fconfig\"('role', 'none', true)",
        "SELECT lo_import('/etc/passwd')",
        "SELECT * FROM benchhouse_store.trial_fact",
        "COPY trial_fact TO '/tmp/never'",
        "RESET ROLE",
    ):
        with pytest.raises(BenchError):
            engine.query(sql)
    assert engine.query("/* why */ SELECT count(*) FROM trial_fact").rows == [(14,)]
    engine.close()


def test_a_user_who_may_make_no_roles_can_push_and_ask(source, address):
    ask(
        address,
        "DROP ROLE IF EXISTS plain",
        "CREATE ROLE plain LOGIN",
        f"GRANT CREATE ON DATABASE {address.rpartition('/')[2]} TO plain",
    )
    lake, engine = LakeEngine(source), open_engine(address.replace("postgres@", "plain@"))
    transfer(lake, engine, ["run-a"])
    lake.close()
    assert engine.query("SELECT count(*) FROM trial_fact").rows == [(14,)]
    with pytest.raises(BenchError, match="read-only transaction"):
        engine.query("WITH gone AS (DELETE FROM benchhouse_store.trial_fact RETURNING 1) SELECT * FROM gone")
    engine.close()
    ask(address, "DROP OWNED BY plain CASCADE", "DROP ROLE plain")
