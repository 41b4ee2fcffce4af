"""The evidence store, on a disk and on a real S3 server: same layout, every byte checked, nothing of others touched."""

import json
import sys
from pathlib import Path

import pytest
from services.seaweedfs import seaweedfs  # noqa: F401 - a fixture

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from trial_maker import flip_byte, make_trial

from benchhouse.evidence.store import DiskShelf, object_key, pointers
from benchhouse.runs import evidence_transfer
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.query import Warehouse


@pytest.fixture
def workspace(tmp_path):
    made = WorkspaceFolder(tmp_path / "ws")
    for run, repetitions in (("run-a", 2), ("run-b", 1)):
        for at in range(1, repetitions + 1):
            make_trial(made, run, at, samples=True, value=100.0 + at)
    return made


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path, monkeypatch):
    """(address, shelf) of an empty store."""
    if request.param == "disk":
        return str(tmp_path / "store"), DiskShelf(tmp_path / "store")
    server = request.getfixturevalue("seaweedfs")
    for name, value in (server.environment | {"AWS_ENDPOINT_URL": server.url}).items():
        monkeypatch.setenv(name, value)
    bucket = server.bucket("evidence")
    prefix = f"team/{tmp_path.name.replace('[', '-').replace(']', '')}"
    return f"s3://evidence/{prefix}", evidence_transfer.S3Shelf(bucket, "", prefix)


def damage_object(shelf, sha256: str) -> None:
    content = bytearray(b"".join(shelf.read(object_key(sha256))))
    content[len(content) // 2] ^= 1
    if isinstance(shelf, DiskShelf):
        flip_byte(Path(shelf.name) / object_key(sha256), len(content) // 2)
    else:
        import hashlib

        shelf.put(object_key(sha256), bytes(content), hashlib.sha256(content).hexdigest())


def files_of(workspace: WorkspaceFolder) -> dict[str, bytes]:
    found = (path for path in sorted(workspace.results.rglob("*")) if path.is_file())
    return {path.relative_to(workspace.results).as_posix(): path.read_bytes() for path in found}


def test_what_is_pushed_comes_back_byte_by_byte_and_is_collected(workspace, place, tmp_path):
    address, _ = place
    pushed = evidence_transfer.push(workspace, address, [])
    assert [one.what for one in pushed] == ["new"] * 3
    assert evidence_transfer.verify(address, [])[::2] == (3, [])
    assert {one.what for one in evidence_transfer.push(workspace, address, [])} == {"same"}

    home = WorkspaceFolder(tmp_path / "home")
    home.root.mkdir()
    assert [one.what for one in evidence_transfer.pull(home, address, ["run-a"])] == ["new", "new"]
    assert [one.what for one in evidence_transfer.pull(home, address, [])].count("same") == 2
    assert files_of(home) == files_of(workspace)
    with Warehouse.open(home) as warehouse:
        collected = warehouse.query("SELECT run_id, trials FROM benchmark_run_fact ORDER BY 1").rows
    assert collected == [("run-a", 2), ("run-b", 1)]


def test_one_flipped_byte_in_the_store_is_found_and_never_pulled(workspace, place, tmp_path):
    address, shelf = place
    evidence_transfer.push(workspace, address, [])
    victim = pointers(shelf, ["run-a"])[0]
    manifest = json.loads((workspace.results / victim.path / "manifest.json").read_text())
    damage_object(shelf, manifest["files"]["samples.csv"]["sha256"])

    _, _, damage = evidence_transfer.verify(address, [])
    assert [(one.trial, one.file, one.kind) for one in damage] == [(victim.path, "samples.csv", "changed")]
    home = WorkspaceFolder(tmp_path / "home")
    home.root.mkdir()
    pulled = evidence_transfer.pull(home, address, [])
    assert sorted(one.what for one in pulled) == ["new", "new", "refused"]
    assert not (home.results / victim.path).exists()
    assert not list(home.results.glob("*/.pull-*"))

    damage_object(shelf, victim.manifest)
    assert [one.file for one in evidence_transfer.verify(address, ["run-a"])[2]] == ["manifest.json"]


def test_an_interrupted_push_is_taken_up_where_it_stopped(workspace, place, monkeypatch):
    address, shelf = place
    kind = type(shelf)
    real, keys = kind.put, []

    def breaks(self, key, source, sha256):
        keys.append(key)
        if len(keys) == 4:
            raise KeyboardInterrupt
        real(self, key, source, sha256)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", breaks)
        with pytest.raises(KeyboardInterrupt):
            evidence_transfer.push(workspace, address, [])
    assert pointers(shelf) == []
    assert len(list(shelf.keys("objects/"))) == 3
    with pytest.raises(BenchError, match="there is no evidence"):
        evidence_transfer.verify(address, [])

    again = []
    monkeypatch.setattr(kind, "put", lambda self, key, *rest: (again.append(key), real(self, key, *rest)))
    evidence_transfer.push(workspace, address, [])
    assert not set(again) & set(keys[:3])
    assert evidence_transfer.verify(address, [])[::2] == (3, [])


def test_a_damaged_folder_is_not_pushed_and_a_dry_run_writes_nothing(workspace, place):
    address, shelf = place
    folder = next(workspace.results.glob("*/*/samples.csv"))
    flip_byte(folder, 40)
    planned = evidence_transfer.push(workspace, address, [], dry_run=True)
    assert list(shelf.keys("")) == []
    pushed = evidence_transfer.push(workspace, address, [])
    assert pushed == planned
    assert sorted(one.what for one in pushed) == ["new", "new", "refused"]
    assert any("samples.csv: changed" in one.reason for one in pushed)


def test_others_in_the_bucket_are_left_alone(workspace, seaweedfs, monkeypatch):  # noqa: F811 - the fixture
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    bucket = seaweedfs.bucket("shared")
    theirs = {"trials/not/ours", "objects/zz/theirs", "ours/trials/x/y", "readme.txt"}
    for key in theirs:
        bucket.put(key, b"theirs", "0682c5f2076f099c34cfdd15a9e063849ed437a49677e6fcc5b4198c76575be5")
    evidence_transfer.push(workspace, "s3://shared/ours", ["run-a"], endpoint=seaweedfs.url)
    assert evidence_transfer.verify("s3://shared/ours", [], endpoint=seaweedfs.url)[0] == 2
    assert theirs <= set(bucket.keys(""))
    assert all(b"".join(bucket.read(key)) == b"theirs" for key in theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {"../../../escaped": {"sha256": "0" * 64, "bytes": 1}}},
        {"files": {"/escaped": {"sha256": "0" * 64, "bytes": 1}}},
        {"files": {"escaped": {"sha256": "../../../../escaped", "bytes": 1}}},
        {"scenario": "../../x"},
        {"scenario": "another"},
        {"run_id": "../../x"},
        {"trial_id": "../../x"},
    ],
)
def test_a_store_can_not_reach_outside_of_results(workspace, tmp_path, changes):
    store = tmp_path / "store"
    evidence_transfer.push(workspace, str(store), ["run-b"])
    (pointer,) = pointers(DiskShelf(store))
    manifest = json.loads((workspace.results / pointer.path / "manifest.json").read_text())
    text = json.dumps(manifest | changes).encode()
    import hashlib

    sha256 = hashlib.sha256(text).hexdigest()
    evil = DiskShelf(tmp_path / "evil")
    evil.put(object_key(sha256), text, sha256)
    evil.put(f"trials/run-b/demo/t1/{sha256}", b"x", "")
    evil.put(f"trials/run-b/.hidden/t1/{sha256}", b"x", "")
    home = WorkspaceFolder(tmp_path / "home")
    home.root.mkdir()
    (refused,) = evidence_transfer.pull(home, evil.name, [])
    assert refused.what == "refused"
    assert "the manifest" in refused.reason
    assert list(home.root.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "endpoint", "said"),
    [
        ("gs://bucket", "", "not the address of a store"),
        ("s3://", "", "not the address of a store"),
        ("s3://bucket/../x", "", "not the address of a store"),
        ("s3://bucket", "http://key:secret@host", "credentials don't belong into an address"),
        ("s3://bucket", "ftp://host", "not the address of a server"),
        ("s3://bucket", "http://127.0.0.1:1", "bucket bucket at http://127.0.0.1:1"),
    ],
)
def test_a_store_that_can_not_be_is_told(workspace, address, endpoint, said, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-word")
    with pytest.raises(BenchError) as told:
        evidence_transfer.push(workspace, address, [], endpoint=endpoint)
    assert said in str(told.value)
    assert "hidden-word" not in str(told.value)


def test_the_command_line_pushes_verifies_and_pulls(bench, workspace, seaweedfs, tmp_path, monkeypatch):  # noqa: F811
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    store = ("s3://made-by-push/x", "--endpoint", seaweedfs.url)
    lost = bench("evidence", "push", *store, cwd=workspace.root)
    assert (lost.code, "Make it: bench evidence push ... --create" in lost.err) == (2, True)
    assert bench("evidence", "push", *store, "--create", "--dry-run", cwd=workspace.root).code == 2
    with monkeypatch.context() as patch:
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        told = bench("evidence", "push", *store, cwd=workspace.root).err
    assert "AWS_SECRET_ACCESS_KEY is not set" in told
    pushed = bench("evidence", "push", *store, "--create", cwd=workspace.root)
    assert pushed.code == 0
    assert "3 trials moved, every object checked\nnext:  bench evidence verify s3://made-by-push/x" in pushed.err
    assert bench("evidence", "verify", *store, cwd=workspace.root).out.endswith("checked: all as sealed\n")
    assert json.loads(bench("evidence", "verify", *store, "--json").out)["checked"] == 3
    home = tmp_path / "home"
    home.mkdir()
    assert json.loads(bench("evidence", "pull", *store, "--dry-run", "--json", cwd=home).out)["dry_run"]
    assert bench("evidence", "pull", *store, cwd=home).code == 0
    assert bench("verify", "--all", cwd=home).code == 0
