"""`bench why` and `bench report --for`, on sealed trials with telemetry that were collected as ever."""

import json
import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

sys.path[:0] = [str(Path(__file__).parents[1] / "results"), str(Path(__file__).parents[1] / "warehouse")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A healthy serving run, one that is throttled, one that is as good, and one of which nothing succeeded."""
    from faults import FAULTS, SERVING, make_fault_run
    from trial_maker import make_trial

    from benchhouse.warehouse.ingest import collect

    root = tmp_path_factory.mktemp("why")
    workspace = WorkspaceFolder(root)
    throttled = next(one for one in FAULTS if one.cause == "cpu_throttling" and one.kind is SERVING)
    make_fault_run(workspace, "20260301-a-good", SERVING, 7)
    make_fault_run(workspace, "20260301-b-slow", SERVING, 7, throttled, 0.5, minute=60)
    make_fault_run(workspace, "20260301-c-fine", SERVING, 7, minute=120)
    broken = [make_trial(workspace, "20260301-d-dead", at, scenario="serving", minute=180, outcome="failed",
                         reason=("no_server", "the server <b>died</b>")) for at in (1, 2)]  # fmt: skip
    collect(workspace, "20260301-d-dead", broken)
    return root


@pytest.fixture
def slow(bench, made):
    done = bench("why", "20260301-b", "--json", cwd=made)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_base_is_the_newest_earlier_run_of_the_plan_and_is_named(slow):
    assert (slow["run_id"], slow["base"]) == ("20260301-b-slow", "20260301-a-good")
    assert slow["base_chosen"] == "the newest earlier run of the same plan"


def test_the_pivot_goes_from_the_run_to_points_to_series_to_bytes(slow, made):
    (point,) = slow["points"]
    assert any(one["metric"] == "e2e" and one["stat"] == "p99" for one in point["numbers"])
    first = point["diagnoses"][0]
    assert (first["cause"], first["playbook"]) == ("cpu_throttling", "tail_latency_regression")
    evidence = {one["series"]: one for one in first["evidence"]}
    assert min(evidence["cgroup_throttled"]["now"]) > max(evidence["cgroup_throttled"]["base"])
    trial = point["trials"][0]
    assert trial["trial_id"] in evidence["cgroup_throttled"]["trials"]
    assert "telemetry/trial.parquet" in trial["files"]
    assert all((made / trial["folder"] / file).is_file() for file in trial["files"])
    assert first["next"] and "{scenario}" not in " ".join(first["next"])


def test_the_value_of_a_series_is_that_of_the_sealed_summary(slow, made):
    """The way from the answer to the bytes, walked by hand."""
    (point,) = slow["points"]
    evidence = next(one for one in point["diagnoses"][0]["evidence"] if one["series"] == "cgroup_throttled")
    trial = evidence["trials"][0]
    folder = next(one["folder"] for one in point["trials"] if one["trial_id"] == trial) if any(
        one["trial_id"] == trial for one in point["trials"]
    ) else f"results/serving/{trial}"  # fmt: skip
    summary = json.loads((made / folder / "telemetry" / "summary.json").read_text())
    sealed = summary["scopes"]["trial"]["series"]["cgroup_throttled"]["phases"]["steady"]["avg"]
    assert evidence["now"][0] == sealed


def test_people_read_the_same(bench, made):
    done = bench("why", "20260301-b", cwd=made)
    assert done.code == 0
    assert "held back by its CPU limit" in done.out and "e2e p99" in done.out
    assert "clocks that disagree between nodes move nothing" in done.err
    assert "bench report 20260301-a-good 20260301-b-slow --for product" in done.err


def test_a_run_that_is_as_good_has_no_cause(bench, made):
    found = json.loads(bench("why", "20260301-c", "--vs", "20260301-a", "--json", cwd=made).out)
    assert found["base_chosen"] == "as asked for"
    assert [one for point in found["points"] for one in point["diagnoses"]] == []


def test_of_a_run_without_a_good_trial_it_says_what_failed(bench, made):
    done = bench("why", "20260301-d", cwd=made)
    assert done.code == 1
    assert "no_server: the server <b>died</b>" in done.out
    assert "bench logs tail 20260301-d-dead --trial" in done.out
    assert "No trial of 20260301-d-dead succeeded" in done.err


def test_the_first_run_has_nothing_to_be_compared_with(bench, made):
    done = bench("why", "20260301-a", cwd=made)
    assert done.code == 0
    assert "no earlier run has the same plan or benchmark case" in done.out
    assert "--vs RUN" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["20260301-b", "--vs", "20260301-b"], "can't be compared with itself"),
        (["nosuch"], "no run 'nosuch'"),
        (["20260301-b", "--vs", "20260301-d"], "no successful trial to compare"),
    ],
)
def test_what_can_not_be_compared_is_refused(bench, made, arguments, said):
    done = bench("why", *arguments, cwd=made)
    assert done.code == 2 and said in done.err


def test_an_empty_workspace_is_told(bench, tmp_path):
    done = bench("why", "@last", cwd=tmp_path)
    assert done.code == 2 and done.err.strip()


def test_the_page_is_one_file_that_asks_nobody_and_escapes(bench, made):
    page = Path(bench("why", "20260301-b", "--html", cwd=made).out.strip())
    text = page.read_text()
    assert "held back by its CPU limit" in text and "http" not in text.replace("http-equiv", "")
    dead = Path(bench("why", "20260301-d", "--html", cwd=made).out.strip()).read_text()
    assert "&lt;b&gt;died" in dead and "<b>died" not in dead


def test_product_reads_impact_confidence_and_next_step(bench, made):
    done = bench("report", "20260301-a", "20260301-b", "--for", "product", "--json", cwd=made)
    text = Path(json.loads(done.out)["markdown"]).read_text()
    assert "The slowest 1 in 100 (e2e) take" in text
    assert "## How sure we are" in text and "## Next step" in text
    assert "cgroup_throttled" not in text.partition("## How sure")[0]


def test_partner_reads_whose_it_is_a_repro_and_the_smallest_change(bench, made):
    text = Path(bench("report", "20260301-b", "--for", "partner", cwd=made).out.strip()).with_suffix(".md").read_text()
    assert "By the evidence the cause is ours" in text
    assert "## Minimal repro" in text and "| upstream | target | hnsw |" in text
    assert "Raise `limits.cpus`" in text


def test_engineering_reads_the_hypothesis_with_its_evidence(bench, made):
    done = bench("report", "20260301-b", "--for", "engineering", cwd=made)
    text = Path(done.out.strip()).with_suffix(".md").read_text()
    assert "Hypothesis: held back by its CPU limit" in text
    assert "| trial cgroup_throttled |" in text
    assert "telemetry/trial.parquet" in text and "Proposed experiment" in text


def test_a_view_takes_two_runs_at_most(bench, made):
    done = bench("report", "a", "b", "c", "--for", "product", cwd=made)
    assert done.code == 2 and "one run, or two" in done.err
