"""Summaries are a cache: they say what the tables say, at once, whatever became of the file they are kept in."""

import sqlite3

import pytest
from trial_maker import make_run, make_trial

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect, open_catalog
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.summaries import FILE_NAME, Summaries

BY_THE_TABLES = """
SELECT t.run_id, count(*) AS n, avg(m.value) AS mean, stddev_samp(m.value) AS stdev, min(m.value) AS min
FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = '' AND t.benchmark_case_id = $case
  AND t.target_name = $target AND m.metric = 'latency' AND m.stat = 'p99'
GROUP BY t.run_id ORDER BY min(t.started), t.run_id
"""


@pytest.fixture
def workspace(tmp_path):
    folder = WorkspaceFolder(tmp_path)
    for at, run in enumerate(("run-a", "run-b", "run-c")):
        collect(folder, run, make_run(folder, run, minute=60 * at))
    return folder


def read(workspace):
    """Every case with its p99 in every run."""
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        cases = [(case["benchmark_case_id"], case["target_name"]) for case in summaries.cases()]
        return {case: summaries.values(*case, "latency", "p99") for case in cases}


def by_the_tables(workspace, case):
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(BY_THE_TABLES, {"case": case[0], "target": case[1]}).dicts()


def agrees(workspace):
    kept = read(workspace)
    assert len(kept) == 4
    for case, rows in kept.items():
        truth = by_the_tables(workspace, case)
        assert [row["run_id"] for row in rows] == [row["run_id"] for row in truth]
        for row, true in zip(rows, truth, strict=True):
            assert {name: row[name] for name in true} == pytest.approx(true)
    return kept


def test_they_say_what_the_tables_say(workspace):
    assert all(len(rows) == 3 for rows in agrees(workspace).values())


def test_a_run_that_is_new_changed_or_gone_is_seen_at_once(workspace):
    read(workspace)
    folders = make_run(workspace, "run-d", minute=600)
    collect(workspace, "run-d", folders[:-1])
    assert all(rows[-1]["run_id"] == "run-d" for rows in agrees(workspace).values())
    collect(workspace, "run-d", folders)
    assert sum(rows[-1]["n"] for rows in agrees(workspace).values()) == len(folders) - 1  # one is a warm-up
    with open_catalog(workspace) as catalog:
        catalog.forget_run("run-a", catalog.files_of("run-a"))
    assert all(rows[0]["run_id"] == "run-b" for rows in agrees(workspace).values())


@pytest.mark.parametrize("spoil", ["no database", "of another version", "gone"])
def test_a_spoiled_file_is_begun_anew(workspace, spoil):
    before = read(workspace)
    path = workspace.warehouse / FILE_NAME
    if spoil == "of another version":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE numbers SET mean = 0")
            db.execute("PRAGMA user_version = 7")
        db.close()
    elif spoil == "gone":
        path.unlink()
    else:
        path.write_bytes(b"no database at all" * 1000)
    assert agrees(workspace) == before


def test_runs_in_which_nothing_succeeded_are_named_and_not_counted(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace, "run-a")])
    collect(workspace, "run-b", [make_trial(workspace, "run-b", outcome="failed", minute=60)])
    with Warehouse.open(workspace) as warehouse, Summaries.of(warehouse) as summaries:
        (case,) = summaries.cases()
        key = case["benchmark_case_id"], case["target_name"]
        assert (case["runs"], summaries.last_run(*key)) == (1, "run-b")
        assert summaries.without_number(*key) == [("run-b", ["failed"])]
