import json
import shutil

import pytest
from claim_maker import NUMBER, STEADY, make, make_run_of, recollect
from trial_maker import flip_byte, make_trial

from benchhouse.api.opening import open_workspace
from benchhouse.claims import claim_files
from benchhouse.claims.creation import NotSafe
from benchhouse.documents.problems import ProblemsError
from benchhouse.report.data import gather
from benchhouse.report.files import write_report
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.warehouse.ingest import rebuild
from benchhouse.warehouse.query import Warehouse


def codes(workspace, *args, **options):
    with pytest.raises(NotSafe) as refused:
        make(workspace, *args, **options)
    assert refused.value.exit_code == Exit.CLAIM_NOT_SAFE
    return [reason.code for reason in refused.value.reasons]


def test_a_steady_number_becomes_a_file_that_is_named_by_its_digest(workspace):
    claim = make(workspace)
    assert (claim.label, claim.reasons, claim.n, claim.unit) == ("PUBLICATION-GRADE", [], 5, "1/s")
    assert claim.value == pytest.approx(sum(STEADY) / 5 * 1.1)
    assert claim.interval[0] < claim.value < claim.interval[1]
    path = workspace.claims / f"{claim.id}.json"
    assert path.stat().st_mode & 0o222 == 0
    assert claim_files.read(workspace, claim.id) == claim
    assert make(workspace).id == claim.id  # the same claim twice is one file
    assert claim_files.list_ids(workspace) == [claim.id]


def test_a_number_of_a_report_is_claimed_by_its_ref(workspace):
    write_report(workspace, gather(workspace, ["run-s"]))
    cells = json.loads(next(workspace.reports.glob("*/report.json")).read_text())["cells"]
    cell = next(one for one in cells if one["key"]["metric"] == "qps")
    assert make(workspace, cell["ref"]).value == cell["value"]
    make_trial(workspace, "run-s", 6, target="flat", value=100.0)
    make_trial(workspace, "run-s", 6, target="hnsw", value=110.0)
    recollect(workspace, "run-s")
    assert codes(workspace, cell["ref"], realism=True) == ["broken_lineage"]  # the tables say something else by now


def test_a_comparison_says_the_change_and_what_changed(workspace):
    claim = make(workspace, NUMBER, "run-s:name=flat")
    assert (claim.kind, claim.unit, claim.verdict) == ("comparison", "%", "better")
    assert claim.value == pytest.approx(10.0)
    assert claim.interval[0] < 10.0 < claim.interval[1]
    assert [one.dimension for one in claim.changed] == ["target"]
    assert [one.side for one in claim.trials] == ["a"] * 5 + ["b"] * 5


def test_every_reason_is_told_at_once(workspace):
    number = make_run_of(workspace, "run-t", (100.0, 140.0), meta={"git_dirty": True})
    make_trial(workspace, "run-t", 3, value=1.0, outcome="invalid", reason=("bad_load", "the load was not delivered"))
    make_trial(workspace, "run-t", 4, value=1.0, outcome="error")
    recollect(workspace, "run-t")
    found = codes(workspace, number)
    assert found == ["few_replicates", "wide_interval", "failed_certificate", "failed_trials", "dirty_tree"]
    claim = make(workspace, number, realism=True)
    assert claim.label == "REALISM-GRADE"
    assert [reason.code for reason in claim.reasons] == found
    assert "the load was not delivered" in claim.reasons[2].message


@pytest.mark.parametrize(
    ("meta", "spec", "code"),
    [
        ({"git_dirty": True}, {}, "dirty_tree"),
        ({"git_commit": None, "git_dirty": None}, {}, "unknown_source"),
        ({}, {"runtime": {"kind": "apptainer", "image": "lab/tool:latest"}}, "unpinned_image"),
        ({"warnings": [{"code": "drift", "message": "latency rose"}]}, {}, "doubted_trials"),
    ],
)
def test_what_the_trials_say_of_themselves_counts(workspace, meta, spec, code):
    number = make_run_of(workspace, "run-t", STEADY, meta=meta, spec=spec)
    assert codes(workspace, number) == [code]
    assert make(workspace, number, realism=True).reasons[0].code == code


def test_a_pinned_image_is_safe(workspace):
    image = {"runtime": {"kind": "apptainer", "image": "lab/tool:latest"}}
    number = make_run_of(workspace, "run-t", STEADY, meta={"container_digest": "d" * 64}, spec=image)
    assert make(workspace, number).label == "PUBLICATION-GRADE"


BARE = {"target": {"name": "lab", "url": "http://me:$LAB_PASSWORD@lab:8000/v1?key=1"}}
OUTSIDE = {"target": {"url": "service:llm"}, "services": {"llm": {"use": {"endpoint": "http://lab:8000"}}}}


@pytest.mark.parametrize("spec", [BARE, OUTSIDE, {"target": {"name": "lab", "base_urls": ["http://lab:8000"]}}])
def test_a_server_of_which_nobody_knows_what_it_is_is_not_published(workspace, spec):
    number = make_run_of(workspace, "run-t", STEADY, spec=spec, meta={"custom": {"framework": "vllm", "server": "llm"}})
    with pytest.raises(NotSafe, match=r"version or image of the server at http://lab:8000") as caught:
        make(workspace, number)
    (reason,) = caught.value.reasons
    name = next(iter(spec.get("services", {"lab": 0})))
    assert reason.code == "unpinned_image" and f"artifacts: {{servers: {{{name}: " in reason.message
    assert "PASSWORD" not in reason.message and "key" not in reason.message


@pytest.mark.parametrize("custom", [{"server_version": "0.9.1"}, {"server": "triton 2.64"}, {"engine": "qdrant 1.15"}])
@pytest.mark.parametrize("spec", [BARE, OUTSIDE])
def test_a_version_that_the_server_told_counts(workspace, spec, custom):
    number = make_run_of(workspace, "run-t", STEADY, spec=spec, meta={"custom": custom})
    assert make(workspace, number).label == "PUBLICATION-GRADE"


@pytest.mark.parametrize(
    ("spec", "name"), [(BARE, "lab"), (BARE, "server"), (OUTSIDE, "llm"), (OUTSIDE, "server")], ids=str
)
def test_an_image_that_the_scenario_names_counts(workspace, spec, name):
    number = make_run_of(
        workspace, "run-t", STEADY, spec=spec | {"artifacts": {"servers": {name: f"lab/vllm@sha256:{'d' * 64}"}}}
    )
    assert make(workspace, number).label == "PUBLICATION-GRADE"
    named = make_run_of(workspace, "run-u", STEADY, spec=spec | {"artifacts": {"servers": {name: "vllm"}}})
    assert codes(workspace, named) == ["unpinned_image"]


def test_a_server_that_bench_starts_or_a_file_is_no_unknown_server(workspace):
    started = {"target": {"url": "http://127.0.0.1:{port}", "start": {"command": ["vllm", "serve"]}}}
    for run, spec in (("run-t", started), ("run-u", {"target": {"endpoint": "file:///data/db"}})):
        assert make(workspace, make_run_of(workspace, run, STEADY, spec=spec)).label == "PUBLICATION-GRADE"


def test_a_percentile_of_few_samples_is_refused(workspace):
    assert codes(workspace, "run-s:name=hnsw:latency.p99") == ["thin_percentile"]


def test_more_than_one_change_is_refused(workspace):
    number = make_run_of(workspace, "run-t", STEADY, meta={"host": "node2", "package_lock_digest": "m" * 64})
    with pytest.raises(NotSafe, match=r"2 things changed at once \(host, package lock digest\)"):
        make(workspace, number, "run-s:name=hnsw")
    assert make(workspace, number, "run-s:name=hnsw", realism=True).label == "REALISM-GRADE"


def test_a_number_is_not_compared_with_itself(workspace):
    assert "same_trials" in codes(workspace, NUMBER, "run-s:name=hnsw", realism=True)


def test_broken_lineage_is_never_labelled_away(workspace):
    with Warehouse.open(workspace) as warehouse:
        folder = next(iter(warehouse.catalog.trial_folders("run-s").values()))
    for path in workspace.results.glob("*/*/metrics.csv"):
        flip_byte(path)
    with pytest.raises(NotSafe, match="can't be labelled away") as refused:
        make(workspace, realism=True)
    assert [reason.code for reason in refused.value.reasons] == ["broken_lineage"]
    shutil.rmtree(folder)
    assert "broken_lineage" in codes(workspace, "run-s:name=hnsw:qps", realism=True)
    assert not workspace.claims.exists()


def test_the_workspaces_policy_is_asked(workspace):
    workspace.claim_policy.write_text("min_replicates: 10\nmax_relative_half_width: 0.001\n")
    assert codes(workspace) == ["few_replicates", "wide_interval"]
    workspace.claim_policy.write_text("min_replicates: 2\nconfidance: 0.9\n")
    with pytest.raises(ProblemsError) as refused:
        make(workspace)
    assert [(one.line, one.suggestion) for one in refused.value.problems] == [(1, ""), (2, "confidence")]


def test_a_claim_is_about_one_number(workspace):
    with pytest.raises(BenchError, match="stands for 2 numbers"):
        make(workspace, "run-s:qps")
    with pytest.raises(BenchError, match="no number of a report"):
        make(workspace, "abcdef")
    with pytest.raises(BenchError, match="names its points"):
        make(workspace, "abcdef", "run-s:name=flat")


def test_tables_under_a_claim_are_kept_and_found_again_by_a_rebuild(workspace):
    claim = make(workspace)
    files = {one.file for one in claim.spec.inputs}
    make_trial(workspace, "run-s", 6, target="hnsw", value=110.0)
    recollect(workspace, "run-s")
    (workspace.warehouse / "catalog.sqlite").unlink()
    rebuild(workspace)
    assert all((workspace.warehouse / file).is_file() for file in files)


def test_an_interval_of_a_run_that_a_rule_ended_is_wider_and_is_checked_as_such(workspace):
    plain = make(workspace)
    scenario = workspace.run("run-s").scenario
    scenario.parent.mkdir(parents=True, exist_ok=True)
    scenario.write_text("repetitions: {until: {ci: 2%, max: 30}}\n")
    wider = make(workspace)
    assert wider.interval[0] < plain.interval[0] and wider.interval[1] > plain.interval[1]
    assert "a rule ended repetitions" in wider.method and "a rule" not in plain.method
    scenario.unlink()  # as on another machine
    assert all(step.ok for step in open_workspace(workspace.root).trace(wider.id).steps)


def test_what_is_refused_says_how_to_make_it_under_a_label(workspace):
    number = make_run_of(workspace, "run-t", STEADY, meta={"host": "node2", "package_lock_digest": "m" * 64})
    with pytest.raises(NotSafe) as refused:
        make(workspace, number, "run-s:name=hnsw")
    assert refused.value.hint.endswith(f"bench claim make {number} --against run-s:name=hnsw --realism")
