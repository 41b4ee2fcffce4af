"""A run from Python: what it says of itself, and that a name means the same run in every verb."""

import pytest

import benchhouse as bh
from benchhouse.api.workspace import Workspace


def test_a_run_is_found_by_its_id_a_prefix_its_place_or_its_scenario(two_runs):
    first, last = two_runs.runs()
    assert two_runs["@last"] == last and two_runs["@last-1"] == two_runs["@last~1"] == first
    assert two_runs["greetings"] == last and two_runs[last.id] == last
    assert two_runs[first.id[: len(first.id) - 1]] == first
    assert len({first, last, two_runs["@last"]}) == 2
    with pytest.raises(bh.BenchError, match="could be"):
        two_runs[first.id[:4]]
    with pytest.raises(bh.BenchError, match="no run 'greeting'") as raised:
        two_runs["greeting"]
    assert "did you mean 'greetings'" in raised.value.hint


def test_a_run_says_how_it_stands(two_runs):
    run = two_runs["@last"]
    status = run.status()
    assert (status.state, status.trials, status.done, status.outcomes) == ("finished", 6, 6, {"succeeded": 6})
    assert run.exit_code == 0 and run.failures() == [] and run.invalid() == []
    assert run.overview().run_id == run.id and run.record.points == 2
    assert run.folder.is_dir() and repr(run) == f"<Run {run.id}>"
    assert run.verify().ok and run.verify().checked == 6


def test_failures_are_named_with_what_they_printed(tmp_path):
    run = bh.open(tmp_path).run(
        {"scenario": "broken", "experiment": "command", "target": {"shell": "echo oh dear >&2; exit 3"}}
    )
    (failure,) = run.failures()
    assert run.exit_code == 1 and failure.outcome == "failed"
    assert "oh dear" in failure.log_tail + failure.message and "bench" in failure.rerun


@pytest.fixture(scope="module")
def pulled(two_runs, tmp_path_factory):
    """A workspace whose older run was made there, and whose last one was pulled from a store."""
    folder = tmp_path_factory.mktemp("pulled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        (folder / "ws").mkdir()
        workspace = Workspace(folder / "ws")
        two_runs.evidence.push(str(folder / "store"), [two_runs["@last"].id], create=True)
        two_runs.evidence.push(str(folder / "store"), [two_runs["@last-1"].id])
        workspace.evidence.pull(str(folder / "store"))
    return workspace


@pytest.mark.starts
def test_a_name_means_the_same_run_in_every_verb_pulled_or_not(two_runs, pulled, bench):
    last, before = two_runs["@last"].id, two_runs["@last-1"].id
    assert [run.id for run in pulled.runs()] == [before, last] and pulled.runs(made_here=True) == []
    assert pulled.select("@last:name=echo", "greetings") == [f"{last}:name=echo", last]
    assert {row.run_id for row in pulled.points("@last")} == {last}
    compared = pulled.compare("@last-1", "@last")
    assert (compared.table.a, compared.table.b) == (before, last)
    assert pulled.why("@last").why.run_id == last
    assert pulled.gate("@last-1", "@last", metrics=["wall_ms"]).table.b == last
    assert last in str(pulled.report("@last").html)
    traced = pulled.trace("@last:name=echo:wall_ms.mean")
    assert traced.ok and last in str(traced.to_dict())
    assert bench("compare", "@last-1", "@last", "--json", cwd=pulled.root).out.count(last) > 0
    assert pulled.verify().ok


@pytest.mark.parametrize("verb", ["status", "overview", "verify", "failures", "stop", "record", "exit_code", "collect"])
def test_a_verb_that_needs_the_ledger_of_a_pulled_run_says_so(pulled, verb):
    """Nobody sees a FileNotFoundError: it answers, or it is a BenchError."""
    run = pulled["@last"]
    try:
        answer = getattr(run, verb)
        answer() if callable(answer) else answer
    except bh.BenchError as error:
        assert run.id in error.message and error.hint


def test_a_pulled_run_shows_itself(pulled):
    assert pulled["@last"].id in pulled["@last"]._repr_html_()
