"""Two releases by their claims: made of sealed trials, told apart by what those say of themselves."""

import json
import re

import pytest
from claim_maker import STEADY, make, make_run_of

from benchhouse.api.opening import open_workspace
from benchhouse.schema.errors import BenchError


def measured(workspace, run_id, factor, version, realism=False, **meta):
    """A claimed run of one point, `factor` times as fast as usual, by a server of this version."""
    values = tuple(value * factor for value in STEADY)
    number = make_run_of(workspace, run_id, values, meta={"custom": {"server_version": version}, **meta})
    return make(workspace, number, realism=realism)


def release(workspace, older="0.9.1", newer="0.10.0", **options):
    return open_workspace(workspace.root).views.release(older, newer, **options).view


def test_a_slower_release_is_worse_and_cites_its_claims(workspace):
    old, new = measured(workspace, "run-1", 1.0, "0.9.1"), measured(workspace, "run-2", 0.8, "0.10.0")
    view = release(workspace)
    [row] = view.rows
    assert (row.group, row.verdict) == ("worse", "worse")
    assert row.change == pytest.approx(-0.2)
    assert (row.older.claim, row.newer.claim) == (old.id, new.id)
    assert (row.older.version, row.newer.version) == ("faiss 0.9.1", "faiss 0.10.0")
    assert row.hardware
    assert view.headline == "0.10.0 against 0.9.1, 1 claimed number: 1 worse"


@pytest.mark.parametrize(("factor", "group"), [(1.2, "better"), (1.0005, "stayed")])
def test_faster_is_better_and_a_hair_is_no_sure_difference(workspace, factor, group):
    measured(workspace, "run-1", 1.0, "0.9.1")
    measured(workspace, "run-2", factor, "0.10.0")
    assert [row.group for row in release(workspace).rows] == [group]


def test_only_claims_count_and_what_one_release_lacks_is_named(workspace):
    measured(workspace, "run-1", 1.0, "0.9.1")
    values = tuple(value * 0.5 for value in STEADY)
    make_run_of(workspace, "run-2", values, meta={"custom": {"server_version": "0.10.0"}})
    with pytest.raises(BenchError, match=r"no claim is of a release '0\.10\.0'") as refused:
        release(workspace)
    assert "0.9.1 (server version)" in refused.value.hint
    make(workspace, "run-2:latency.p50")
    view = release(workspace)
    assert view.rows == []
    assert [len(view.only_older), len(view.only_newer)] == [1, 1]
    assert "no claimed number in common" in view.headline


def test_of_several_claims_of_a_number_the_newest_counts(workspace):
    measured(workspace, "run-1", 1.0, "0.9.1")
    measured(workspace, "run-2", 0.5, "0.10.0")
    last = measured(workspace, "run-3", 1.2, "0.10.0")
    [row] = release(workspace).rows
    assert (row.group, row.newer.claim) == ("better", last.id)


def test_a_realism_grade_claim_is_left_out_or_marked(workspace):
    measured(workspace, "run-1", 1.0, "0.9.1")
    measured(workspace, "run-2", 0.8, "0.10.0")
    dirty = measured(workspace, "run-3", 0.7, "0.10.0", realism=True, git_dirty=True)
    view = release(workspace)
    assert [(item.claim, item.reason.partition(";")[0]) for item in view.left_out] == [
        (dirty.id, "REALISM-GRADE (dirty_tree)")
    ]
    [row] = release(workspace, realism=True).rows
    assert (row.newer.claim, row.newer.label) == (dirty.id, "REALISM-GRADE")


def test_a_claim_whose_evidence_changed_is_left_out(workspace):
    measured(workspace, "run-1", 1.0, "0.9.1")
    new = measured(workspace, "run-2", 0.8, "0.10.0")
    folder = workspace.root / new.trials[0].folder
    (folder / "metrics.json").chmod(0o644)
    (folder / "metrics.json").write_text((folder / "metrics.json").read_text() + " ")
    view = release(workspace)
    assert view.rows == []
    assert [item.claim for item in view.left_out] == [new.id]
    assert "does not hold any more" in view.left_out[0].reason


def test_releases_by_run_commit_and_with_the_servers_name(workspace):
    measured(workspace, "run-1", 1.0, "0.9.1", git_commit="a" * 40)
    measured(workspace, "run-2", 0.8, "0.10.0", git_commit="b" * 40)
    assert release(workspace, "faiss 0.9.1", "faiss@0.10.0").by == ("server version", "server version")
    assert release(workspace, "run-1", "run-2").by == ("run", "run")
    assert release(workspace, "aaaaaaa", "bbbbbbb").by == ("commit", "commit")
    with pytest.raises(BenchError, match="compared with itself"):
        release(workspace, "run-1", "run-1")
    with pytest.raises(BenchError, match="no claim is of a release 'aaaa'"):
        release(workspace, "aaaa", "bbbbbbb")  # too short to be a commit


def test_a_workspace_without_claims_says_what_to_do(workspace):
    with pytest.raises(BenchError, match="no claim to make a view of: there is none"):
        release(workspace)


def test_the_command_prints_a_table_json_markdown_and_a_page(bench, workspace):
    measured(workspace, "run-1", 1.0, "0.9.1")
    measured(workspace, "run-2", 0.8, "0.10.0")
    words = ["views", "release", "--from", "0.9.1", "--to", "0.10.0"]
    shown, plain, text, path = (
        bench(*words, *more, cwd=workspace.root).out for more in ([], ["--json"], ["--markdown"], ["--html"])
    )
    assert re.search(r"Worse\nmodel .*\n.*\n *hnsw .*-20\.0%", shown), shown
    assert json.loads(plain)["rows"][0]["group"] == "worse"
    assert "## Worse" in text
    page = workspace.reports / "releases" / "0.9.1..0.10.0.html"
    assert path.strip() == str(page)
    assert "<h2>Worse</h2>" in page.read_text()
    assert page.with_suffix(".md").read_text() == text.rstrip("\n") + "\n"
    refused = bench("views", "release", "--from", "0.9.1", "--to", "7", cwd=workspace.root)
    assert (refused.code, refused.out) == (2, "")
