"""Shell completion: names of experiments and ids of runs."""

import pytest

from benchhouse.runs.ledger import Ledger, RunRecord, new_run_id
from benchhouse.schema.trial import ExperimentRef
from benchhouse.sites import places


@pytest.fixture
def complete(bench, monkeypatch):
    def call(words, shell="bash"):
        monkeypatch.setenv("_BENCH_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return [line.partition(",")[2] for line in bench().out.splitlines()]

    return call


@pytest.fixture
def run_id(tmp_path):
    ref = ExperimentRef(name="command", version="1", object="m:f", distribution="d", distribution_version="1")
    record = RunRecord(
        run_id=new_run_id(), scenario="s", scenario_file="s.yaml", created="2026-01-01T00:00:00+00:00",
        plan_digest="0" * 64, points=1, trials=1, experiment=ref, executor="local", runtime="process",
        host="h", command=["bench"],
    )  # fmt: skip
    Ledger.create(places.workspace(tmp_path), record, {"scenario": "scenario: s\n"})
    return record.run_id


def test_verbs_complete(complete):
    assert complete("bench va") == ["validate"]


def test_experiments_complete(complete):
    assert complete("bench show co") == ["command"]
    assert {"command", "storage.file", "vector.search"} <= set(complete("bench show "))


def test_recipes_with_an_image_complete(complete):
    assert complete("bench images pin mil") == ["milvus"]  # milvus_lite has none


def test_runs_complete(complete, run_id):
    assert complete("bench report ") == ["@last", run_id]
    assert complete(f"bench status {run_id[:6]}") == [run_id]
    assert complete("bench run --resume ") == ["@last", run_id]


def test_runs_of_another_workspace_complete(complete, run_id, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run_id in complete(f"bench -C {tmp_path} report ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell, bench):
    done = bench("completion", shell)
    assert done.code == 0
    assert f"_BENCH_COMPLETE={shell}_complete" in done.out


def test_executors_and_runtimes_complete(complete):
    assert complete("bench run --executor s") == ["slurm", "spark"]
    assert "apptainer" in complete("bench plan --runtime ")


def test_what_a_verb_does_is_not_cut_off_beside_its_name(bench, monkeypatch):
    monkeypatch.setenv("_BENCH_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "bench ")
    monkeypatch.setenv("COMP_CWORD", "1")
    told = bench().out
    assert "Compare runs, or points of runs" in told.splitlines() and "..." not in told


@pytest.mark.parametrize("words", ["show co", "run --executor s", "report "])
def test_in_a_folder_that_does_not_exist_nothing_completes_and_no_error_is_printed(words, bench, monkeypatch):
    monkeypatch.setenv("_BENCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"bench -C gone {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) + 2))
    done = bench()
    assert (done.out.strip(), done.err) == ("", "")
