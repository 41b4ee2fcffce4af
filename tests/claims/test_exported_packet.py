"""Metadata of a packet: mlcroissant reads the tables out of the packet, RO-Crate's libraries take the crate."""

import json
import shutil
import subprocess

import pytest
from claim_maker import NUMBER
from services.export_readers import program, read_with

from benchhouse.api.workspace import Workspace
from benchhouse.schema.errors import BenchError, Exit

LICENCE, ADDRESS = "https://creativecommons.org/licenses/by/4.0/", "https://example.org/claim"
READ_CROISSANT = """
import json
import mlcroissant
dataset = mlcroissant.Dataset(jsonld="croissant.json")
issues = dataset.metadata.issues
sets = {item.uuid: list(dataset.records(item.uuid)) for item in dataset.metadata.record_sets}
def plain(value):
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, (int, float, str)) else str(value)
rows = {name: [{key: plain(value) for key, value in row.items()} for row in own] for name, own in sets.items()}
print(json.dumps({"errors": sorted(issues.errors), "warnings": sorted(issues.warnings), "rows": rows}))
"""
READ_CRATE = """
import importlib.resources, json, pathlib
from rocrate.rocrate import ROCrate
crate = ROCrate(".")
packet = crate.get("claim.tar")
context = json.loads((importlib.resources.files("rocrate") / "data" / "ro-crate.jsonld").read_text())
path = pathlib.Path("ro-crate-metadata.json")
path.write_text(json.dumps(json.loads(path.read_text()) | {"@context": context["@context"]}))
print(json.dumps({"name": crate.name, "sha256": packet["sha256"], "value": crate.get("#number")["value"]}))
"""


@pytest.fixture
def packed(workspace):
    """A workspace with a claim and its packet."""
    own = Workspace(workspace.root)
    claim = own.claims.make(NUMBER, realism=True)
    own.claims.export(claim.id, workspace.root / "claim.tar")
    return own, claim


@pytest.mark.slow
def test_mlcroissant_reads_the_claim_and_its_rows_out_of_the_packet(packed, tmp_path):
    workspace, claim = packed
    shutil.copy(workspace.root / "claim.tar", tmp_path)
    workspace.export(
        str(tmp_path / "claim.tar"), "croissant", tmp_path / "croissant.json", licence=LICENCE, url=ADDRESS
    )
    read = read_with(READ_CROISSANT, tmp_path)
    assert (read["errors"], read["warnings"]) == ([], [])
    (row,) = read["rows"].pop("claim")
    assert row["claim/value"] == claim.value and row["claim/n"] == claim.n
    measured = next(rows for name, rows in read["rows"].items() if name.startswith("measurement_fact"))
    values = [
        value
        for row in measured
        for key, value in row.items()
        if key.endswith("/value")
        and any(text == claim.metric for name, text in row.items() if name.endswith("/metric"))
    ]
    assert {trial.value for trial in claim.trials} <= set(values)


@pytest.mark.slow
def test_ro_crate_validates_and_rocrate_reads_it(packed, tmp_path):
    """The validator wants the context from the web: it is given the one that the library `rocrate` brings."""
    workspace, claim = packed
    shutil.copy(workspace.root / "claim.tar", tmp_path)
    made = workspace.export(
        str(tmp_path / "claim.tar"), "ro-crate", tmp_path / "ro-crate-metadata.json", licence=LICENCE
    )
    assert made.left_out == ()
    read = read_with(READ_CRATE, tmp_path)
    assert read["value"] == claim.value and read["name"] == f"Claim {claim.id}"
    command = [program("rocrate-validator"), "validate", "--no-paging", "-p", "ro-crate-1.1", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "valid" in done.stdout, done.stdout[-2000:]


def test_what_nobody_said_of_the_packet_is_told_and_not_guessed(packed):
    workspace, _ = packed
    made = workspace.export(str(workspace.root / "claim.tar"), "croissant")
    assert "license" not in json.loads(made.text)
    assert any("--licence" in line for line in made.left_out)


def test_a_changed_packet_and_a_run_are_refused(packed, tmp_path):
    workspace, _ = packed
    content = bytearray((workspace.root / "claim.tar").read_bytes())
    content[2000] ^= 1
    (tmp_path / "changed.tar").write_bytes(content)
    with pytest.raises(BenchError, match="is refused") as refused:
        workspace.export(str(tmp_path / "changed.tar"), "croissant")
    assert refused.value.exit_code == Exit.CLAIM_NOT_SAFE
    with pytest.raises(BenchError, match="is not a file"):
        workspace.export("@last", "ro-crate")
    with pytest.raises(BenchError, match="are told of a packet"):
        workspace.export("@last", "bencher", licence=LICENCE)
