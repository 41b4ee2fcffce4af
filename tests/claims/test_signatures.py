"""Unsigned is never shown as signed; who signed is said only where the key is trusted."""

import base64
import json
from pathlib import Path

import pytest
from claim_maker import claims_of, export, make

from benchhouse.claims import signatures
from benchhouse.schema.errors import BenchError


@pytest.fixture
def signed(workspace):
    claim = make(workspace)
    claims_of(workspace).make_key("claim")
    claims_of(workspace).sign(claim.id)
    return claim


def envelope(workspace, claim):
    return workspace.claims / f"{claim.id}.dsse"


def test_a_private_key_is_its_owners_alone_and_is_never_written_over(workspace):
    claims = claims_of(workspace)
    pair = claims.make_key("claim")
    assert pair.private.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" in pair.private.read_bytes()
    assert json.loads(pair.public.read_text())["keyid"] == pair.keyid
    with pytest.raises(BenchError, match="there is a key"):
        claims.make_key("claim")
    with pytest.raises(BenchError, match="can't name a key"):
        claims.make_key("../claim")


def test_a_signature_is_an_in_toto_statement_about_the_claims_bytes(workspace, signed):
    told = json.loads(envelope(workspace, signed).read_text())
    statement = json.loads(base64.b64decode(told["payload"]))
    assert told["payloadType"] == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": f"claims/{signed.id}.json", "digest": {"sha256": signed.sha256()}}]
    assert claims_of(workspace).verify(signed.id).signature.state == "signed"


def test_a_packet_holds_the_signature_and_never_the_key(workspace, signed, tmp_path, monkeypatch):
    packet = export(workspace, signed, tmp_path / "claim.tar", with_raw=True)
    assert b"PRIVATE" not in packet.read_bytes()
    public = tmp_path / "keys" / "claim.pub"
    assert claims_of(workspace).verify(str(packet), [public]).signature.state == "signed"
    monkeypatch.setenv("BENCH_KEYS_DIR", str(tmp_path / "no keys"))
    checked = claims_of(workspace).verify(str(packet))
    assert (checked.ok, checked.signature.state) == (True, "unknown key")
    assert "not trusted here" in checked.signature.says


def test_a_key_that_is_asked_for_must_have_signed(workspace, signed, tmp_path):
    other = claims_of(workspace).make_key("other").public
    checked = claims_of(workspace).verify(signed.id, [other])
    assert (checked.ok, checked.signature.state) == (False, "unknown key")
    envelope(workspace, signed).unlink()
    checked = claims_of(workspace).verify(signed.id, [tmp_path / "keys" / "claim.pub"])
    assert (checked.ok, checked.signature.state) == (False, "unsigned")
    assert claims_of(workspace).verify(signed.id).ok


def test_a_wrong_signature_is_no_signature(workspace, signed):
    path = envelope(workspace, signed)
    told = json.loads(path.read_text())
    signature = bytearray(base64.b64decode(told["signatures"][0]["sig"]))
    signature[3] ^= 1
    told["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    path.write_text(json.dumps(told))
    checked = claims_of(workspace).verify(signed.id)
    assert (checked.ok, checked.signature.state) == (False, "wrong")
    for content in ("", "{}", "[]", '{"payload": 1, "payloadType": "x", "signatures": []}', "x" * (2 << 20)):
        path.write_text(content)
        assert claims_of(workspace).verify(signed.id).signature.state == "wrong"


def test_a_signature_of_another_claim_does_not_count(workspace, signed):
    other = make(workspace, "run-s:name=flat:qps")
    envelope(workspace, other).write_bytes(envelope(workspace, signed).read_bytes())
    checked = claims_of(workspace).verify(other.id)
    assert (checked.ok, checked.signature.state) == (False, "wrong")
    assert "another claim" in checked.signature.says


def test_a_payload_that_was_exchanged_is_found(workspace, signed):
    path = envelope(workspace, signed)
    told = json.loads(path.read_text())
    statement = json.loads(base64.b64decode(told["payload"]))
    statement["predicate"]["value"] = 1e9
    told["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    path.write_text(json.dumps(told))
    assert claims_of(workspace).verify(signed.id).signature.state == "wrong"


def test_a_key_that_others_can_read_is_not_used(workspace, signed, tmp_path):
    private = tmp_path / "keys" / "claim.key"
    private.chmod(0o644)
    with pytest.raises(BenchError, match="may be read by others"):
        claims_of(workspace).sign(signed.id)
    private.chmod(0o600)
    private.write_text("no key")
    with pytest.raises(BenchError, match="not a private key"):
        claims_of(workspace).sign(signed.id)
    with pytest.raises(BenchError, match="there is no key"):
        claims_of(workspace).sign(signed.id, tmp_path / "none.key")


def test_keys_are_named_by_what_they_are(workspace, signed, tmp_path):
    public = tmp_path / "keys" / "claim.pub"
    told = json.loads(public.read_text())
    lying = tmp_path / "lying.pub"
    lying.write_text(json.dumps(told | {"keyid": "0" * 64}))
    assert list(signatures.read_keys([lying])) == [told["keyid"]]
    lying.write_text("{}")
    with pytest.raises(BenchError, match="is not a public key"):
        signatures.read_keys([lying])
    with pytest.raises(BenchError, match=r"can't be read: .*none\.pub: No such file"):
        signatures.read_keys([tmp_path / "none.pub"])


def test_without_the_library_a_signature_is_not_believed(workspace, signed, monkeypatch):
    monkeypatch.setattr(signatures, "has_library", lambda: False)
    checked = claims_of(workspace).verify(signed.id)
    assert checked.signature.state == "not checked"
    assert "benchhouse[sign]" in checked.signature.says
    with pytest.raises(BenchError, match="not installed"):
        claims_of(workspace).make_key("more")
    with pytest.raises(BenchError, match="can't be checked here"):  # which is no verdict on the claim
        claims_of(workspace).verify(signed.id, [Path("claim.pub")])
