"""One meaning of `@last`, of prefixes and of scenario names, for runs of the tables and runs of the ledger alike."""

import pytest
from tables import check_rows
from trial_maker import make_run

from benchhouse.runs.ledger import Ledger, RunRecord
from benchhouse.runs.selection import find_run, find_selector, local_and_pulled_runs
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trial import ExperimentRef
from benchhouse.warehouse.ingest import collect


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> WorkspaceFolder:
    workspace = WorkspaceFolder(tmp_path_factory.mktemp("selection"))
    for minute, run in enumerate(("20260301-aa11", "20260302-bb22", "20260302-bb33")):
        scenario = "demo" if minute < 2 else "nightly"
        collect(workspace, run, make_run(workspace, run, scenario=scenario, minute=minute))
    return workspace


def test_a_run_can_be_named_in_short(filled):
    rows = [
        ("@last", "20260302-bb33"),
        ("@last-1", "20260302-bb22"),
        ("@last~1", "20260302-bb22"),
        ("@last-2", "20260301-aa11"),
        ("20260301", "20260301-aa11"),
        ("20260302-bb22", "20260302-bb22"),
        ("demo", "20260302-bb22"),
        ("nightly", "20260302-bb33"),
    ]

    def check(token, run):
        assert find_run(filled, token) == run
        assert find_selector(filled, f"{token}:ef=16:qps.mean") == f"{run}:ef=16:qps.mean"

    check_rows(check, rows)


def test_a_run_that_is_not_clear_is_answered_with_candidates(filled):
    rows = [
        ("20260302", "could be 20260302-bb22, 20260302-bb33"),
        ("nightli", "did you mean 'nightly'"),
        ("@last-3", "this workspace has 3"),
        ("", "no run ''"),
    ]

    def check(token, message):
        with pytest.raises(BenchError) as refused:
            find_run(filled, token)
        assert message in f"{refused.value.message} {refused.value.hint}"

    check_rows(check, rows)


def test_an_empty_workspace_says_so(tmp_path):
    with pytest.raises(BenchError, match="there is no run in this workspace yet"):
        find_run(WorkspaceFolder(tmp_path), "@last")


def test_a_run_that_was_not_collected_is_known_by_its_ledger(tmp_path):
    workspace, new, old = WorkspaceFolder(tmp_path), "20260303-000000-cc44", "20260301-aa11"
    collect(workspace, old, make_run(workspace, old, scenario="demo"))
    record = RunRecord(
        run_id=new, scenario="fresh", scenario_file="s.yaml", created="", plan_digest="0" * 64, points=1, trials=1,
        experiment=ExperimentRef(name="e", version="1", object="e:e", distribution="e", distribution_version="1"),
        executor="local", runtime="process", host="h", command=[],
    )  # fmt: skip
    Ledger.create(workspace, record, {"scenario": "scenario: fresh\n"}).release()
    assert local_and_pulled_runs(workspace) == [old, new]
    assert [find_run(workspace, token) for token in ("@last", "@last-1", "fresh", "demo")] == [new, old, new, old]
