import statistics
import subprocess
import sys

import pytest
from tables import check_table
from trial_maker import make_run, make_trial

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect
from benchhouse.warehouse.queries import failures, points, trials
from benchhouse.warehouse.query import Warehouse
from benchhouse.warehouse.table import SCHEMA_VERSION
from benchhouse.warehouse.tables import TABLES, VIEWS

_EMPTY = {"telemetry_slice_fact", "serving_outcome_fact", "training_outcome_fact", "storage_outcome_fact"}
_IDENTITY = {"run_id", "benchmark_case_id", "workload_spec_digest", "artifact_manifest_digest"}


@pytest.fixture
def filled(workspace: WorkspaceFolder) -> WorkspaceFolder:
    for minute, run in enumerate(("20260301-aa11", "20260302-bb22", "20260302-bb33")):
        scenario = "demo" if minute < 2 else "nightly"
        collect(workspace, run, make_run(workspace, run, scenario=scenario, minute=minute))
    return workspace


@pytest.fixture
def warehouse(filled: WorkspaceFolder):
    with Warehouse.open(filled) as opened:
        yield opened


def test_points_are_the_statistics_of_the_measured_trials(warehouse):
    result = points(warehouse, ["20260301-aa11"])
    rows = result.dicts()
    assert len(rows) == 4 * 3  # two targets, two ef, three numbers; no warm-up, no window
    for row in rows:
        assert row["n"] == len(row["values"]) == len(row["trials"]) == 3
        assert row["mean"] == pytest.approx(statistics.mean(row["values"]), rel=1e-15)
        assert row["stdev"] == pytest.approx(statistics.stdev(row["values"]), rel=1e-12)
        assert (row["min"], row["max"]) == (min(row["values"]), max(row["values"]))
        assert row["samples"] == (3 if row["metric"] == "qps" else 60)
    qps = [row for row in rows if row["metric"] == "qps"]
    assert [(row["target_name"], row["point"]) for row in qps] == [
        (name, f"name={name} ef={ef}") for name in ("flat", "hnsw") for ef in (16, 64)
    ]
    assert qps[0]["values"] == sorted(qps[0]["values"]), "by repetition"
    assert points(warehouse, ["20260301-aa11"]).rows == result.rows


def test_a_result_pins_its_query(warehouse):
    spec = points(warehouse, ["20260301-aa11"]).spec
    assert {one.table for one in spec.inputs} == {"trial_fact", "measurement_fact"}
    assert {one.run_id for one in spec.inputs} == {"20260301-aa11"}
    assert (spec.name, spec.parameters, spec.engine) == ("points", {"runs": ["20260301-aa11"]}, "duckdb")
    assert points(warehouse, ["20260301-aa11"]).spec.digest() == spec.digest()
    assert points(warehouse, ["20260302-bb22"]).spec.digest() != spec.digest()


def test_one_repetition_has_no_deviation(workspace):
    collect(workspace, "run-a", [make_trial(workspace)])
    with Warehouse.open(workspace) as warehouse:
        assert [(row["n"], row["stdev"]) for row in points(warehouse, ["run-a"]).dicts()] == [(1, None)] * 3


def test_failures_and_trials_list_every_trial(workspace):
    collect(workspace, "run-a", [make_trial(workspace), make_trial(workspace, repetition=2, outcome="lost")])
    with Warehouse.open(workspace) as warehouse:
        assert [row["outcome"] for row in trials(warehouse, ["run-a"]).dicts()] == ["succeeded", "lost"]
        assert [row["failure_code"] for row in failures(warehouse, ["run-a"]).dicts()] == ["boom"]
        assert len(points(warehouse, ["run-a"]).rows) == 3


def test_an_empty_warehouse_has_empty_tables_of_the_same_types(workspace, filled):
    empty = WorkspaceFolder(workspace.root / "elsewhere")
    with Warehouse.open(empty) as nothing, Warehouse.open(filled) as full:
        for table in TABLES:
            none, some = (one.query(f"SELECT * FROM {table}") for one in (nothing, full))
            assert none.rows == []
            assert some.rows != [] or table in _EMPTY or TABLES[table].source
            assert (none.columns, none.types) == (some.columns, some.types)
        assert points(nothing, ["x"]).rows == []


def test_sql_takes_parameters_and_sees_pruned_runs_only(warehouse):
    sql = "SELECT count(*) FROM benchmark_run_fact WHERE scenario = $scenario"
    assert warehouse.query(sql, {"scenario": "demo"}).rows == [(2,)]
    assert warehouse.query(sql, {"scenario": "demo"}, runs=["20260301-aa11"]).rows == [(1,)]
    assert warehouse.query("SHOW TABLES").rows == [(name,) for name in sorted([*TABLES, *VIEWS])]


FORBIDDEN = [
    "COPY (SELECT 1) TO '{root}/out.csv'",
    "COPY trial_fact TO '{file}' (USE_TMP_FILE false)",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('{other}')",
    "SELECT * FROM read_blob('{catalog}')",
    "ATTACH '{root}/x.db'",
    "ATTACH '{catalog}' (TYPE sqlite)",
    "INSTALL httpfs",
    "LOAD json",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW trial_fact AS SELECT 1",
    "DROP VIEW trial_fact",
    "INSERT INTO trial_fact SELECT * FROM trial_fact",
    "WITH x AS (INSERT INTO trial_fact VALUES (1)) SELECT 1",
    "UPDATE trial_fact SET outcome = 'succeeded'",
    "DELETE FROM trial_fact",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA threads = 3",
    "EXPORT DATABASE '{root}/e'",
    "CREATE SECRET s (TYPE s3)",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
    "SELECT 1; SELECT 2",
    "BEGIN",
    "",
    "SELECT * FROM secret_python_variable",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{root}/out.csv''')",
]


@check_table("sql", FORBIDDEN)
def test_sql_can_only_read_the_tables(filled, sql):
    secret_python_variable = [1]
    with Warehouse.open(filled) as warehouse:
        files = warehouse.catalog.files(["trial_fact"])
        names = {
            "root": filled.root,
            "file": filled.warehouse / files[0].file,
            "other": filled.warehouse / files[1].file,
            "catalog": filled.warehouse / "catalog.sqlite",
        }
        before = {path: path.read_bytes() for path in filled.warehouse.glob("*/*")}
        with pytest.raises(BenchError):
            warehouse.query(sql.format(**names), runs=[files[0].run_id])
        assert {path: path.read_bytes() for path in filled.warehouse.glob("*/*")} == before
        assert sorted(path.name for path in filled.root.iterdir()) == [".bench", "results"]
        assert warehouse.query("SELECT count(*) FROM trial_fact").rows == [(39,)], secret_python_variable


def test_bad_sql_is_answered_with_the_engines_words(warehouse):
    with pytest.raises(BenchError, match="syntax error"):
        warehouse.query("SELEC 1")
    with pytest.raises(BenchError, match="run_idd"):
        warehouse.query("SELECT run_idd FROM trial_fact")
    with pytest.raises(BenchError, match="scenario"):
        warehouse.query("SELECT $scenario")


def test_a_run_that_is_not_in_the_tables_is_answered_with_those_that_are(warehouse, workspace):
    assert warehouse.require_run("20260302-bb22") == "20260302-bb22"
    with pytest.raises(BenchError, match="the newest are 20260302-bb33, 20260302-bb22, 20260301-aa11"):
        warehouse.require_run("20260302")
    empty = WorkspaceFolder(workspace.root / "elsewhere")
    with Warehouse.open(empty) as nothing, pytest.raises(BenchError, match="nothing has been collected"):
        nothing.require_run("20260302-bb22")


def test_runs_are_listed_newest_first(warehouse):
    assert [run.run_id for run in warehouse.catalog.runs(2)] == ["20260302-bb33", "20260302-bb22"]
    assert warehouse.catalog.runs()[0].trials == 13


def test_asking_needs_no_pyarrow(filled):
    code = (
        "import sys; from pathlib import Path; from benchhouse.schema.layout import WorkspaceFolder;"
        "from benchhouse.warehouse.query import Warehouse; from benchhouse.warehouse.queries import points;"
        "w = Warehouse.open(WorkspaceFolder(Path(sys.argv[1]))); assert points(w, ['20260302-bb33']).rows;"
        "assert 'pyarrow' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, filled.root], check=True)


def test_a_question_opens_only_the_tables_that_it_is_about(warehouse):
    assert warehouse.query("SELECT 1 + 1").spec.inputs == []
    named = warehouse.query("SELECT count(*) FROM trial_fact")
    assert {one.table for one in named.spec.inputs} == {"trial_fact"}
    for asked in ("SELECT table_name FROM information_schema.tables", "SHOW TABLES"):
        assert {row[0] for row in warehouse.query(asked).rows} >= set(TABLES)  # asks what there is: all of them


def test_one_question_needs_neither_plans_nor_runs_nor_reports(filled):
    code = (
        "import sys, benchhouse;"
        "result = benchhouse.open(sys.argv[1]).query('SELECT count(*) FROM trial_fact');"
        "assert list(result) == [(39,)];"
        "found = {name.split('.')[1] for name in sys.modules if name.startswith('benchhouse.')};"
        "assert not found & {'plan', 'runs', 'report', 'analysis', 'worker', 'catalog'}, found"
    )
    subprocess.run([sys.executable, "-c", code, filled.root], check=True)


def test_every_column_is_described():
    for table in TABLES.values():
        assert table.description
        assert all(column.description.endswith((".", ". ")) or "..." in column.description for column in table.columns)
        assert {one.name for one in table.columns} >= _IDENTITY or table.source
        schema = table.schema
        assert schema.names == [column.name for column in table.columns]
        assert schema.metadata[b"benchhouse.schema_version"] == str(SCHEMA_VERSION).encode()
