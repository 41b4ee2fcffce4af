"""One point of another system's sweep, as a trial of ours; the other system is not needed for that."""

import json

import pytest
from ado_packages import install_ours

from benchhouse.bridges.points import run_job, run_point
from benchhouse.catalog.entries import installed
from benchhouse.catalog.listing import list_experiments, resolve


@pytest.fixture
def sums(tmp_path, monkeypatch):
    """The reference of `sums` in a version, as the actuator hands it on."""
    install_ours(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("BENCH_CACHE_DIR", str(tmp_path / "cache"))
    installed.cache_clear()
    yield lambda version: resolve("sums", version, list_experiments(tmp_path / "cache")).ref().model_dump()
    installed.cache_clear()


def test_a_point_is_a_sealed_trial_where_evidence_is_kept(sums, bench, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_ADO_WORKSPACE", str(tmp_path / "kept"))
    ended = run_point(sums("2.0"), {"first": 1, "second": 5})
    assert (ended.values, ended.failure) == ({"total": 6.0}, "")
    assert (ended.facts["metadata"], ended.facts["distribution"]) == ({"said": "by 2.0"}, "sums-2 2.0")
    failed = run_point(sums("1.0"), {"first": 2})
    assert failed.failure.startswith("ArithmeticError: two is too much\nTraceback")
    assert (failed.facts["type"], failed.facts["version"]) == ("ArithmeticError", "1.0")
    folders = [path for path in (tmp_path / "kept" / "results" / "ado").iterdir() if path.name != ".partial"]
    assert [bench("verify", folder).code for folder in folders] == [0, 0]


def test_a_figure_that_is_invalid_is_not_handed_on(sums):
    ended = run_point(sums("2.0"), {"first": 3})
    assert (ended.values, ended.failure, ended.facts["outcome"]) == ({}, "", "succeeded")


def test_a_job_whose_worker_can_not_start_says_so(tmp_path):
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "trial.json").write_text(json.dumps({"final": str(tmp_path / "final")}))
    told = {"folder": str(tmp_path / "trial"), "python": ["false"], "log": str(tmp_path / "logs" / "log")}
    (tmp_path / "job.json").write_text(json.dumps(told))
    ended = run_job(str(tmp_path / "job.json"))
    assert "the worker exited with 1" in ended.failure
    assert "the worker exited with 1" in (tmp_path / "logs" / "log").read_text()
