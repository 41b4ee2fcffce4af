"""The engine that this program's own questions share."""

import os

import duckdb
import pytest
from tables import check_table
from trial_maker import make_run

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import shared_database
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.queries import points, trials
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.shared_database import SharedViews

RUNS = ("run-a", "run-b")


@pytest.fixture
def filled(workspace: WorkspaceFolder) -> WorkspaceFolder:
    for minute, run in enumerate(RUNS):
        collect(workspace, run, make_run(workspace, run, minute=minute))
    return workspace


@pytest.fixture
def starts(monkeypatch) -> list[str]:
    """One entry an engine that was started."""
    seen: list[str] = []
    start = duckdb.connect
    monkeypatch.setattr(shared_database, "_last", None)
    monkeypatch.setattr(duckdb, "connect", lambda *given, **more: (seen.append("started"), start(*given, **more))[1])
    return seen


def test_an_engine_is_started_once_for_all_own_questions(filled, starts):
    for _ in range(2):
        with Warehouse.open(filled) as warehouse:
            assert len(points(warehouse, ["run-a"]).rows) == 12
            assert len(trials(warehouse, RUNS).rows) == 26
    assert starts == ["started"]


def test_warehouses_that_are_open_at_once_see_their_own_files(filled, starts):
    with Warehouse.open(filled) as one, Warehouse.open(filled) as other:
        for _ in range(2):
            for warehouse, run in ((one, "run-a"), (other, "run-b")):
                assert {row["run_id"] for row in trials(warehouse, [run]).dicts()} == {run}
    assert starts == ["started"]


def test_another_workspace_has_an_engine_of_its_own(filled, starts, tmp_path):
    elsewhere = WorkspaceFolder(tmp_path / "elsewhere")
    with Warehouse.open(filled) as first, Warehouse.open(elsewhere) as second:
        assert trials(first, ["run-a"]).rows
        assert trials(second, ["run-a"]).rows == []
        assert points(first, ["run-a"]).rows, "the first goes on, though its engine is no longer the last"
    assert len(starts) == 2


def test_a_forked_process_starts_its_own(filled, starts, monkeypatch):
    with Warehouse.open(filled) as warehouse:
        trials(warehouse, ["run-a"])
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with Warehouse.open(filled) as warehouse:
        trials(warehouse, ["run-b"])  # what was asked before is known
    assert len(starts) == 2


def test_what_a_user_writes_never_gets_there(filled, starts):
    with Warehouse.open(filled) as warehouse:
        trials(warehouse, ["run-a"])
        other = next(entry.file for entry in warehouse.catalog.files(["trial_fact"], ["run-b"]))
        with pytest.raises(BenchError, match="can't answer"):
            warehouse.query(f"SELECT * FROM read_parquet('{filled.warehouse / other}')", runs=["run-a"])
        assert warehouse.query("SELECT count(*) FROM trial_fact", runs=["run-a"]).rows == [(13,)]
    assert len(starts) == 2, "a user's questions have an engine that sees their files alone"


@check_table(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('{warehouse}/catalog.sqlite')",
        "SELECT * FROM read_blob('{warehouse}/trial_fact/../catalog.sqlite')",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '{warehouse}/x.csv'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "ATTACH '{warehouse}/x.db'",
    ],
)
def test_it_sees_the_folders_of_the_tables_and_nothing_else(filled, sql):
    views = SharedViews(filled)
    try:
        engine = views.show(["trial_fact"], [], older=False)
        with pytest.raises(duckdb.Error):
            engine.execute(sql.format(warehouse=filled.warehouse)).fetchall()
    finally:
        views.close()
