"""A catalog that says something else than the tables is found out."""

import sqlite3
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tables import check_table

from benchhouse.api.verification import Verification, verify_all
from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.audit import audit_tables, outdated_runs
from benchhouse.warehouse.ingest import collect, rebuild

sys.path.insert(0, str(Path(__file__).parent))
import trial_maker
from trial_maker import flip_byte, make_run, make_trial


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> WorkspaceFolder:
    workspace = WorkspaceFolder(tmp_path_factory.mktemp("audit") / "ws")
    collect(workspace, "run-a", make_run(workspace, repetitions=1))
    return workspace


@pytest.fixture
def catalog(workspace):
    path = workspace.warehouse / "catalog.sqlite"
    content = path.read_bytes()
    yield path
    restore(path, content)


def restore(catalog, content):
    for journal in catalog.parent.glob("catalog.sqlite-*"):
        journal.unlink()
    catalog.write_bytes(content)


def test_slices_of_telemetry_are_counted_as_rows_not_as_trials(tmp_path, monkeypatch):
    """Of two series a trial, so that there are more slices than trials."""
    one = trial_maker.telemetry(1.5, "2026-03-01T12:00:00.000+00:00")
    scope = one.scopes["trial"]
    both = scope.model_copy(update={"series": {"cpu": scope.series["cpu"], "memory": scope.series["cpu"]}})
    monkeypatch.setattr(
        trial_maker, "telemetry", lambda cores, started: one.model_copy(update={"scopes": {"trial": both}})
    )
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", [make_trial(workspace, "run-a", at, cores=1.5) for at in (1, 2)])
    with sqlite3.connect(workspace.warehouse / "catalog.sqlite") as catalog:
        ((rows,),) = catalog.execute("SELECT rows FROM files WHERE table_name = 'telemetry_slice_fact'")
    assert rows == 4
    assert audit_tables(workspace) == []


def test_what_was_collected_is_in_order(workspace):
    assert audit_tables(workspace) == []
    assert verify_all(workspace) == Verification(5, [], [])


@check_table(
    "sql, message",
    [
        ("UPDATE files SET sha256 = 'x' || substr(sha256, 2)", "is no file of table"),
        ("UPDATE files SET sha256 = substr(sha256, 1, 63) || 'x'", "sha256 is not the one"),
        ("UPDATE files SET rows = rows + 1", "has other than"),
        ("UPDATE files SET trials = 4", "other trials or times"),
        ("UPDATE files SET started_min = '2020'", "other trials or times"),
        ("UPDATE files SET run_id = 'run-b'", "is no file of table"),
        ("DELETE FROM files WHERE table_name = 'trial_fact'", "lacks a table"),
        ("DELETE FROM files", "has no tables"),
        ("UPDATE runs SET scenario = 'other'", "is not what the tables say"),
        ("UPDATE runs SET failed = 9", "is not what the tables say"),
        ("DELETE FROM trials WHERE trial_id = (SELECT min(trial_id) FROM trials)", "are not those of the tables"),
        ("UPDATE trials SET folder = 'elsewhere'", "are not those of the tables"),
        ("INSERT INTO published VALUES ('abcd', 'reports/x/report.json')", "can't be read as a document"),
        ("INSERT INTO pinned VALUES ('trial_fact/x.parquet')", "its pins are not"),
        ("DROP INDEX runs_by_start", "its tables are not those"),
        ("PRAGMA user_version = 0", "the warehouse catalog is empty"),
    ],
)
def test_a_wrong_entry_of_the_catalog_is_found(workspace, catalog, sql, message):
    content = catalog.read_bytes()
    with sqlite3.connect(catalog) as db:
        db.execute(sql)
    db.close()
    problems = audit_tables(workspace)
    restore(catalog, content)
    assert any(message in line for line in problems), problems


def test_a_catalog_that_is_no_database_is_one_problem(workspace, catalog):
    catalog.write_bytes(b"not a database" * 500)
    assert len(audit_tables(workspace)) == 1


def test_a_catalog_whose_pages_are_damaged_is_damage_and_no_error_of_verify(workspace, catalog):
    size = catalog.stat().st_size
    for at in range(4096, size, 4096):  # the head of every page but the first, so that it opens
        flip_byte(catalog, at)
    assert {item.trial for item in verify_all(workspace).damage} == {"warehouse"}


def test_a_flipped_byte_of_a_table_or_of_evidence_is_found(workspace):
    for file in sorted(workspace.warehouse.glob("*/*.parquet")):
        content = file.read_bytes()
        flip_byte(file, at=len(content) // 2)
        assert any(file.name in line for line in audit_tables(workspace))
        file.write_bytes(content)
    path = next(workspace.results.glob("*/*/meta.json"))
    content = path.read_bytes()
    flip_byte(path)
    assert [one.file for one in verify_all(workspace).damage] == ["meta.json"]
    path.write_bytes(content)


def test_a_rebuild_takes_in_only_what_is_whole_and_the_damage_stays_known(tmp_path):
    """A file that no row is made of."""
    workspace = WorkspaceFolder(tmp_path)
    folders = sorted(make_run(workspace, repetitions=1))
    collect(workspace, "run-a", folders)
    flip_byte(folders[0] / "metrics.csv")
    (folders[1] / "metrics.csv").unlink()
    made = rebuild(workspace)
    assert made.trials == len(folders) - 2
    assert [line.removeprefix(str(folder)) for line, folder in zip(sorted(made.dropped), folders, strict=False)] == [
        ": not what was sealed: metrics.csv changed",
        ": not what was sealed: metrics.csv missing",
    ]
    found = [(damage.trial, damage.file, damage.kind) for damage in verify_all(workspace).damage]
    assert found == [
        (folders[0].name, "metrics.csv", "changed"),
        (folders[1].name, "metrics.csv", "missing"),
    ]


@pytest.mark.parametrize("lacks", ["nothing", "a column", "the version"])
def test_tables_of_an_older_benchhouse_are_no_damage_and_told_as_what_they_are(tmp_path, lacks):
    """As a lake looks that was collected before a column or a version was added."""
    workspace = WorkspaceFolder(tmp_path)
    collect(workspace, "run-a", make_run(workspace, repetitions=1))
    collect(workspace, "run-b", make_run(workspace, "run-b", repetitions=1))
    if lacks != "nothing":
        make_older(workspace, "run-a", lacks)
    assert audit_tables(workspace) == []
    assert outdated_runs(workspace) == ([] if lacks == "nothing" else ["run-a"])
    rebuild(workspace)
    assert audit_tables(workspace) == [] and outdated_runs(workspace) == []


def make_older(workspace, run_id, lacks):
    db = sqlite3.connect(workspace.warehouse / "catalog.sqlite")
    where = f"table_name = 'workload_dim' AND run_id = '{run_id}'"
    (file,) = db.execute(f"SELECT file FROM files WHERE {where}").fetchone()
    if lacks == "the version":
        db.execute(f"UPDATE files SET schema_version = 1 WHERE run_id = '{run_id}'")
    else:
        path = workspace.warehouse / file
        table = pq.read_table(path)
        pq.write_table(table.drop_columns(table.column_names[-1:]), path)
        digest = file_digest(path)
        path.rename(path.with_name(f"{run_id}-{digest[:12]}.parquet"))
        renamed = f"workload_dim/{run_id}-{digest[:12]}.parquet"
        db.execute(f"UPDATE files SET sha256 = '{digest}', file = '{renamed}' WHERE {where}")
    db.commit()
    db.close()
