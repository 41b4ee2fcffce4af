"""artifact_lineage_dim follows what becomes of evidence: pushed, signed, packed, and made again after a loss."""

import json

import pytest
from claim_maker import claims_of, export, make

from benchhouse.api.opening import open_workspace
from benchhouse.schema.digests import file_digest
from benchhouse.warehouse.ingest import rebuild
from benchhouse.warehouse.query import Warehouse


@pytest.fixture
def signer(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_KEYS_DIR", str(tmp_path / "keys"))


def lineage(workspace):
    with Warehouse.open(workspace) as warehouse:
        (row,) = warehouse.query("SELECT * FROM artifact_lineage_dim").dicts()
    return row


def test_a_run_that_nobody_vouches_for_is_unsigned_and_its_evidence_has_an_absolute_uri(workspace):
    rebuild(workspace)  # it was collected elsewhere
    row = lineage(workspace)
    assert row["raw_uri"] == (workspace.results / "demo").absolute().as_uri()
    assert (row["signing_state"], row["signed_claims"], row["packets"], row["store_uris"]) == ("unsigned", [], [], [])


def test_a_store_a_signature_and_a_packet_enter_the_lineage(workspace, signer, tmp_path):
    store, evidence = tmp_path / "store", open_workspace(workspace.root).evidence
    rebuild(workspace)
    evidence.push(str(store), dry_run=True)
    assert lineage(workspace)["store_uris"] == []
    evidence.push(str(store))
    evidence.push(str(store))
    claims, claim = claims_of(workspace), make(workspace)
    key = claims.make_key().keyid
    claims.sign(claim.id)
    packet = export(workspace, claim, tmp_path / "claim.tar")
    row = lineage(workspace)
    assert row["store_uris"] == [f"{store.as_uri()}/trials/run-s"]
    assert (row["signing_state"], row["signed_claims"]) == ("signed", [f"{claim.id} {key}"])
    assert row["packets"] == [f"{packet.absolute().as_uri()}#sha256={file_digest(packet)}"]
    assert claims.verify(claim.id).ok  # what it was computed from is still there
    rebuild(workspace)
    assert lineage(workspace) == row


@pytest.mark.parametrize("damage", ["another claim", "no JSON", "another run"])
def test_a_signature_that_is_about_something_else_signs_nothing(workspace, signer, damage):
    claims, claim = claims_of(workspace), make(workspace)
    claims.make_key()
    envelope = claims.sign(claim.id)
    path = workspace.claims / f"{claim.id}.json"
    path.chmod(0o644)
    if damage == "another claim":
        path.write_bytes(path.read_bytes() + b" ")
    elif damage == "no JSON":
        envelope.write_text("run-s")
    else:
        content = json.loads(path.read_text())
        content["trials"] = [trial | {"run_id": "run-x"} for trial in content["trials"]]
        path.write_text(json.dumps(content))
    rebuild(workspace)
    assert lineage(workspace)["signing_state"] == "unsigned"
