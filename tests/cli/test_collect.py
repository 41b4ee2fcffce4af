"""`bench collect`, `bench query` and `bench warehouse`, as a user types them."""

import hashlib
import json
import shutil


def lake(lab):
    """Name and digest of every curated file."""
    folder = lab.workspace / ".bench" / "warehouse"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.parquet")}


def test_collect_can_be_repeated_and_a_rebuild_gives_the_same_bytes(lab):
    lab.run("mischief", workload={"act": ["ok", "raise"]}, code=1)
    before = lake(lab)
    collected = json.loads(lab.bench("collect", "@last", "--json").stdout)
    assert (collected["trials"], collected["skipped"]) == (2, [])
    assert lake(lab) == before
    shutil.rmtree(lab.workspace / ".bench" / "warehouse")
    assert "1 run, 2 trials" in lab.bench("warehouse", "rebuild").stdout
    assert lake(lab) == before


def test_query_answers_in_json_and_csv_and_only_reads(lab):
    lab.run("mischief", workload={"act": ["ok", "raise"]}, code=1)
    sql = "SELECT outcome, count(*) AS n FROM trial_fact GROUP BY 1 ORDER BY 1"
    answer = json.loads(lab.bench("query", sql, "--json").stdout)
    assert answer["rows"] == [{"outcome": "error", "n": 1}, {"outcome": "succeeded", "n": 1}]
    assert len(answer["query_spec_digest"]) == 64
    assert lab.bench("query", sql, "--csv").stdout == "outcome,n\nerror,1\nsucceeded,1\n"
    assert "read, never written" in lab.bench("query", "DROP VIEW trial_fact", code=2).stderr


def test_the_tables_are_described_column_by_column(lab):
    tables = json.loads(lab.bench("warehouse", "schema", "--json").stdout)
    assert {"benchmark_run_fact", "trial_fact", "measurement_fact"} <= set(tables)
    assert all(column["meaning"] for table in tables.values() for column in table["columns"])
    one = lab.bench("warehouse", "schema", "serving_outcome_fact").stdout
    assert one.startswith("serving_outcome_fact: One row per run x workload point x concurrency point")
    assert "Did you mean 'trial_fact'?" in lab.bench("warehouse", "schema", "trial_facts", code=2).stderr
