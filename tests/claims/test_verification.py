"""A claim that says something else than its evidence is found out, however well its digests fit."""

import pytest
from claim_maker import NUMBER, STEADY, claims_of, export, make, make_run_of
from trial_maker import flip_byte

from benchhouse.analysis.compare import DEFINITION
from benchhouse.api.opening import open_workspace
from benchhouse.api.verification import verify_all
from benchhouse.claims import claim_files
from benchhouse.claims.creation import comparison_fields, value_fields
from benchhouse.schema.claim import UnsafeReason
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.query import cell_ref
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse


def forge(workspace, claim, **changes):
    """The same claim with other words, under the name that fits its new bytes."""
    forged = claim.model_copy(update=changes)
    (workspace.claims / f"{forged.id}.json").write_bytes(forged.text())
    return claims_of(workspace).verify(forged.id)


def said(checked):
    return "\n".join(line for step in checked.trace.steps for line in step.says)


def test_a_claim_walks_back_in_four_steps(workspace):
    claim = make(workspace)
    traced = open_workspace(workspace.root).trace(claim.id[:6])
    assert traced.ok
    assert [step.name for step in traced.steps] == ["report", "query", "identity", "evidence"]
    query = "\n".join(traced.steps[1].says)
    assert "quantiles hyndman-fan-7" in query
    assert 'parameters {"runs": ["run-s"]}' in query
    assert all(f"input {one.file}: sha256 {one.sha256}" in query for one in claim.spec.inputs)
    assert "duckdb" in query
    assert traced.steps[1].details[0]["sql"] == claim.spec.sql
    checked = claims_of(workspace).verify(claim.id)
    assert (checked.ok, checked.signature.state) == (True, "unsigned")


@pytest.mark.parametrize(
    "changes",
    [
        {"value": 200.0},
        {"interval": (110.0, 110.5)},
        {"n": 50},
        {"unit": "1/ms"},
        {"statement": "hnsw is ten times as fast"},
        {"point": "another"},
        {"method": "by eye"},
        {"measured_to": "2030-01-01T00:00:00.000+00:00"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_forged_field_is_found(workspace, changes):
    checked = forge(workspace, make(workspace), **changes)
    assert not checked.ok
    assert f"{next(iter(changes))} is " in said(checked)


def test_forged_trials_rows_and_queries_are_found(workspace):
    claim = make(workspace)
    trials = [claim.trials[0].model_copy(update={"artifact_manifest_digest": "0" * 64}), *claim.trials[1:]]
    assert "trials is" in said(forge(workspace, claim, trials=trials))
    cell = claim.cells[0].model_copy(update={"value": 200.0})
    assert "off by" in said(forge(workspace, claim, cells=[cell]))
    cell = claim.cells[0].model_copy(update={"column": "max"})
    assert "is not of its query" in said(forge(workspace, claim, cells=[cell]))


def test_a_strangers_sql_is_not_run(workspace):
    claim = make(workspace)
    spec = claim.spec.model_copy(update={"sql": "SELECT 200.0 AS mean"})
    cell = claim.cells[0].model_copy(update={"query": spec.digest(), "value": 200.0})
    checked = forge(workspace, claim, queries={spec.digest(): spec}, cells=[cell], value=200.0)
    assert not checked.ok
    assert "is not run" in said(checked)
    assert checked.trace.steps[1].says == ["not reached"]


def test_the_query_of_an_earlier_version_is_run_again(workspace):
    claim = make(workspace)
    earlier = queries.POINTS.replace(", max(m.error_bound) AS error_bound", "").replace(", error_bound\nFROM", "\nFROM")
    earlier = earlier.replace("WHERE m.outcome", "WHERE t.outcome")
    spec = claim.spec.model_copy(update={"sql": earlier})
    key, column = claim.cells[0].key, claim.cells[0].column
    own = {"query": spec.digest(), "ref": cell_ref(spec.digest(), key, column)}
    checked = forge(workspace, claim, queries={spec.digest(): spec}, cells=[claim.cells[0].model_copy(update=own)])
    assert checked.ok, said(checked)


def test_a_label_that_does_not_hold_is_found(workspace):
    number = make_run_of(workspace, "run-t", STEADY, meta={"git_dirty": True})
    claim = make(workspace, number, realism=True)
    checked = forge(workspace, claim, label="PUBLICATION-GRADE", reasons=[])
    assert not checked.ok
    assert "its label does not hold" in said(checked)
    assert "dirty_tree" in said(checked)
    assert "with 1 reasons against it" in said(forge(workspace, claim, label="PUBLICATION-GRADE"))


def test_a_claim_may_admit_more_than_is_asked_where_another_version_asked_for_it(workspace):
    number = make_run_of(workspace, "run-t", STEADY, meta={"git_dirty": True})
    claim = make(workspace, number, realism=True)
    more = [*claim.reasons, UnsafeReason(code="unpinned_image", message="somebody else keeps it")]
    assert "it does not lack unpinned_image" in said(forge(workspace, claim, reasons=more))
    assert forge(workspace, claim, reasons=more, benchhouse="0.0.1").ok
    less = forge(workspace, claim, reasons=more[1:], benchhouse="0.0.1")
    assert "it lacks dirty_tree (run-t name=hnsw ef=16: the git tree had uncommitted changes" in said(less)


def test_a_forged_comparison_is_found(workspace):
    claim = make(workspace, NUMBER, "run-s:name=flat")
    assert "verdict is" in said(forge(workspace, claim, verdict="no evidence of a difference"))
    assert "changed is" in said(forge(workspace, claim, changed=[]))


EIGHT = (100.0, 101.0, 99.5, 100.4, 99.9, 100.2, 99.7, 103.0)


def compared_by(workspace, definition):
    """A claim of eight trials a side, and what it would say by another definition of intervals."""
    for name, factor in (("run-a", 1.0), ("run-b", 1.1)):
        make_run_of(workspace, name, tuple(value * factor for value in EIGHT))
    claim = make(workspace, "run-b:qps", "run-a", realism=True)
    with Warehouse.open(workspace) as warehouse:
        rows = queries.points(warehouse, ["run-a", "run-b"]).dicts()
    a, b = (next(row for row in rows if (row["run_id"], row["metric"]) == (run, "qps")) for run in ("run-a", "run-b"))
    return claim, comparison_fields(a, b, claim.policy.confidence, definition)


def test_a_claim_is_computed_again_by_the_definition_that_it_was_made_with(workspace):
    claim, before = compared_by(workspace, 1)
    assert claim.definition == DEFINITION and before["interval"] != claim.interval
    assert claims_of(workspace).verify(claim.id).ok
    for noted in (1, None):  # None: made before the definition was noted
        checked = forge(workspace, claim, **before, definition=noted)
        assert checked.ok, said(checked)
        assert f"made with definition 1 of intervals, by which it is the same; definition {DEFINITION}" in said(checked)
    assert b'"definition"' not in claim.model_copy(update={"definition": None}).text()


def test_a_claim_of_one_number_is_computed_again_by_its_definition_too(workspace):
    claim = make(workspace)
    with Warehouse.open(workspace) as warehouse:
        rows = queries.points(warehouse, [claim.cells[0].key["run_id"]]).dicts()
    row = next(row for row in rows if all(row[name] == value for name, value in claim.cells[0].key.items()))
    before = value_fields(row, claim.policy.confidence, 2)
    assert before["interval"] != claim.interval
    checked = forge(workspace, claim, **before, definition=2)
    assert checked.ok, said(checked)
    assert f"made with definition 2 of intervals, by which it is the same; definition {DEFINITION}" in said(checked)
    assert not forge(workspace, claim, **before).ok  # says the newest, and is an earlier one


def test_no_definition_excuses_a_forged_interval(workspace):
    claim, before = compared_by(workspace, 1)
    for noted in (1, None, DEFINITION):
        checked = forge(workspace, claim, **before | {"interval": (9.99, 10.01)}, definition=noted)
        assert not checked.ok and "interval is" in said(checked)
    assert not forge(workspace, claim, **before).ok  # says the newest, and is the first


def test_a_definition_of_a_newer_version_is_told_as_that(workspace):
    claim, _ = compared_by(workspace, 1)
    checked = forge(workspace, claim, definition=DEFINITION + 1)
    assert not checked.ok and f"made with definition {DEFINITION + 1} of intervals" in said(checked)
    assert "use the newer one that made it" in said(checked)
    assert all(step.ok for step in checked.trace.steps[1:])  # the bytes agree


def test_a_changed_file_is_no_claim(workspace):
    claim = make(workspace)
    path = workspace.claims / f"{claim.id}.json"
    path.chmod(0o644)
    flip_byte(path, at=100)
    with pytest.raises(BenchError) as refused:
        claims_of(workspace).verify(claim.id)
    assert refused.value.exit_code == Exit.CLAIM_NOT_SAFE
    assert not open_workspace(workspace.root).trace(claim.id).ok
    assert claims_of(workspace).list()[0].label == "CHANGED"
    assert "claims" in [item.trial for item in verify_all(workspace).damage]


def test_evidence_that_changed_later_breaks_the_claim(workspace, tmp_path):
    claim = make(workspace)
    flip_byte(workspace.root / claim.trials[2].folder / "samples.csv")
    checked = claims_of(workspace).verify(claim.id)
    assert [step.name for step in checked.trace.steps if not step.ok] == ["evidence"]
    with pytest.raises(BenchError, match="does not hold any more"):
        claims_of(workspace).export(claim.id, tmp_path / "x.tar", with_raw=False)
    assert not (tmp_path / "x.tar").exists()


def test_claims_are_found_by_their_beginning(workspace):
    claim = make(workspace)
    assert claim_files.find(workspace, claim.id[:4]) == claim.id
    assert claim_files.find(workspace, claim.id[:3]) is None
    with pytest.raises(BenchError, match="there is no claim"):
        claim_files.require(workspace, "../../etc/passwd")


def test_a_claim_is_judged_by_the_policy_of_its_verifier_too(workspace, tmp_path):
    """Made with 80% intervals, it holds by the policy of its maker alone."""
    settings = workspace.root / "claims.yaml"
    settings.write_text("confidence: 0.8\nmax_relative_half_width: 0.5\nrefused_warnings: []\n")
    claim = make(workspace)
    packet = export(workspace, claim, tmp_path / "claim.tar")
    own = claims_of(workspace).verify(claim.id)
    assert own.ok and own.policies.weaker == own.policies.stricter == own.policies.lacks == []

    elsewhere = WorkspaceFolder(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    checked = claims_of(elsewhere).verify(str(packet))
    assert checked.ok, "it is publication-safe by the defaults, too"
    assert [rule.partition(" ")[0] for rule in checked.policies.weaker][:2] == ["confidence", "max_relative_half_width"]
    assert any("80% intervals" in line for line in checked.trace.steps[0].says)

    strict = "max_relative_half_width: 0.001\n"
    (elsewhere.root / "claims.yaml").write_text(strict)
    settings.write_text(strict)
    for checked in (claims_of(elsewhere).verify(str(packet)), claims_of(workspace).verify(claim.id)):
        assert not checked.ok
        assert [reason.code for reason in checked.policies.lacks] == ["wide_interval"]
        assert checked.label == "PUBLICATION-GRADE"
    assert claims_of(workspace).verify(make(workspace, realism=True).id).ok, "it says what it lacks"
