"""The evidence store, on a disk and on a real S3 server: same layout, every byte checked, nothing of others touched."""

import hashlib
import json
import shutil
import sys
from itertools import count
from pathlib import Path

import pytest
from services.refusing_proxy import HALF, Refusal, refusing
from services.seaweedfs import seaweedfs  # noqa: F401 - a fixture

sys.path.insert(0, str(Path(__file__).parents[1] / "warehouse"))
from trial_maker import flip_byte, make_trial

from benchhouse.evidence.folder import seal
from benchhouse.evidence.store import (
    Carried,
    DiskShelf,
    Pointer,
    StoreRefused,
    check,
    object_key,
    pointers,
    pull,
    push,
)
from benchhouse.evidence.verify import manifest_digest, verify
from benchhouse.runs import evidence_transfer, s3_object_store
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
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


def keys_of(shelf, prefix: str) -> list[str]:
    return [key for key, _ in shelf.sizes(prefix)]


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
    real, order, done = kind.put, count(), []

    def breaks(self, key, source, sha256):
        if next(order) >= 3:
            raise KeyboardInterrupt
        real(self, key, source, sha256)
        done.append(key)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "put", breaks)
        with pytest.raises(KeyboardInterrupt):
            evidence_transfer.push(workspace, address, [])
    assert pointers(shelf) == []
    assert sorted(keys_of(shelf, "objects/")) == sorted(done)
    assert len(done) == 3
    with pytest.raises(BenchError, match="there is no evidence"):
        evidence_transfer.verify(address, [])

    again = []
    monkeypatch.setattr(kind, "put", lambda self, key, *rest: (again.append(key), real(self, key, *rest)))
    evidence_transfer.push(workspace, address, [])
    assert not set(again) & set(done)
    assert evidence_transfer.verify(address, [])[::2] == (3, [])


def test_a_damaged_folder_is_not_pushed_and_a_dry_run_writes_nothing(workspace, place):
    address, shelf = place
    folder = next(workspace.results.glob("*/*/samples.csv"))
    flip_byte(folder, 40)
    planned = evidence_transfer.push(workspace, address, [], dry_run=True)
    assert keys_of(shelf, "") == []
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
        ("gs://bucket", "", "not the address of a bucket"),
        ("s3://", "", "not the address of a bucket"),
        ("s3://bucket/../x", "", "not the address of a bucket"),
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


# -- a server that is not well


@pytest.fixture
def unwell(seaweedfs, workspace, tmp_path, monkeypatch):  # noqa: F811 - the fixture
    """(address, proxy, shelf, one of its pointers) of a store with all trials, behind a proxy that may refuse."""
    for name, value in seaweedfs.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3_object_store, "_WAITS_S", (0.01, 0.02))
    address = f"s3://evidence/{tmp_path.name}"
    shelf = evidence_transfer.S3Shelf(seaweedfs.bucket("evidence"), "", tmp_path.name)
    evidence_transfer.push(workspace, address, [], endpoint=seaweedfs.url)
    with refusing(seaweedfs.url) as proxy:
        yield address, proxy, shelf, pointers(shelf, ["run-b"])[0]


def files_of_manifest(workspace, pointer):
    return json.loads((workspace.results / pointer.path / "manifest.json").read_text())["files"]


@pytest.mark.parametrize("status", [500, 503, HALF])
def test_what_a_server_does_not_give_is_unreadable_and_only_other_bytes_are_changed(bench, workspace, unwell, status):
    address, proxy, shelf, pointer = unwell
    files = files_of_manifest(workspace, pointer)
    damage_object(shelf, files["metrics.csv"]["sha256"])
    first, second = pointers(shelf, ["run-a"])
    proxy.refusals += [
        Refusal(files["metrics.json"]["sha256"], status),
        Refusal(first.manifest, status),
    ]
    damage = evidence_transfer.verify(address, [], endpoint=proxy.url)[2]
    assert {(item.trial, item.file): item.kind for item in damage} == {
        (first.path, first.key): "unreadable",
        (first.path, "manifest.json"): "unreadable",
        (pointer.path, "metrics.json"): "unreadable",
        (pointer.path, "metrics.csv"): "changed",
    }
    told = bench("evidence", "verify", address, "--endpoint", proxy.url, "--run", second.run_id, cwd=workspace.root)
    assert told.code == 1
    assert "0 faults" not in told.out
    assert "2 objects could not be read" in told.out
    assert "again when the store is well:  bench evidence verify" in told.err
    proxy.refusals.clear()
    assert [item.kind for item in evidence_transfer.verify(address, [], endpoint=proxy.url)[2]] == ["changed"]


def test_what_is_not_in_the_bucket_is_missing(seaweedfs, workspace, unwell):  # noqa: F811 - the fixture
    address, proxy, _, pointer = unwell
    bucket = seaweedfs.bucket("evidence")
    prefix = address.rpartition("/")[2]
    sha256 = files_of_manifest(workspace, pointer)["samples.csv"]["sha256"]
    bucket.remove([f"{prefix}/{object_key(sha256)}"])
    (damage,) = evidence_transfer.verify(address, [pointer.run_id], endpoint=proxy.url)[2]
    assert (damage.file, damage.kind) == ("samples.csv", "missing")


def test_a_passing_error_is_asked_again_and_a_lasting_one_is_told_soon(workspace, unwell, tmp_path, monkeypatch):
    address, proxy, _, _ = unwell
    proxy.refusals += [Refusal("/objects/", 503, 2, "PUT"), Refusal("/objects/", 500, 2), Refusal("/trials/", 500, 1)]
    pushed = evidence_transfer.push(workspace, f"{address}/second", [], endpoint=proxy.url)
    assert {item.what for item in pushed} == {"new"}
    assert evidence_transfer.verify(f"{address}/second", [], endpoint=proxy.url)[::2] == (3, [])

    proxy.refusals.append(Refusal("/objects/", 500, method="PUT"))
    with pytest.raises(StoreRefused, match="InternalError: not well"):
        evidence_transfer.push(workspace, f"{address}/third", [], endpoint=proxy.url)
    proxy.refusals.clear()
    evidence_transfer.push(workspace, f"{address}/third", [], endpoint=proxy.url)
    assert evidence_transfer.verify(f"{address}/third", [], endpoint=proxy.url)[::2] == (3, [])

    monkeypatch.setattr(s3_object_store, "_PATIENCE_S", 0.02)
    proxy.refusals.append(Refusal("/objects/", 500))
    proxy.asked.clear()
    damage = evidence_transfer.verify(address, [], endpoint=proxy.url)[2]
    assert [item.kind for item in damage] == ["unreadable"] * 3
    gets = [path for _, path in proxy.asked if "/objects/" in path]
    assert len(gets) <= len(set(gets)) + 8, "patience is for the store, not for each of its objects"


# -- by the byte, on a disk; the folder holds a.txt, empty.txt and sub/b.txt


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def shelf(tmp_path):
    return DiskShelf(tmp_path / "shelf")


@pytest.fixture
def pointer(shelf, sealed):
    list(push(shelf, [sealed]))
    return Pointer("r1", "demo", "t1", manifest_digest(sealed))


def test_a_push_writes_each_object_once_and_says_last_that_the_folder_is_there(shelf, sealed, disk):
    size = 3 + sealed.manifest.stat().st_size
    new = Carried(run_id="r1", folder="demo/t1", what="new", objects=4, size=size)
    assert list(push(shelf, [sealed], dry_run=True)) == [new] and keys_of(shelf, "") == []
    assert list(push(shelf, [sealed, sealed], dry_run=True))[1].objects == 0
    assert list(push(shelf, [sealed])) == [new]
    manifest = manifest_digest(sealed)
    objects = sorted(object_key(one) for one in (sha(b"x"), sha(b""), sha(b"yy"), manifest))
    key = f"trials/r1/demo/t1/{manifest}"
    assert keys_of(shelf, "objects/") == objects and keys_of(shelf, "") == [*objects, key]
    assert b"".join(shelf.read(key)) == f"{manifest}\n".encode()
    renamed = [event.split()[1:] for event in disk if event.startswith("rename")]
    assert len(renamed) == 5
    for temporary, final in renamed:
        synced, named = disk.index(f"sync {temporary}"), disk.index(f"rename {temporary} {final}")
        assert synced < named, "on disk before it has its name"
        assert f"sync {final.rpartition('/')[0]}" in disk[named + 1 :], "and then its name is"
    assert disk[-2].endswith(key), "the name of the folder comes last"
    assert list(push(shelf, [sealed])) == [Carried(run_id="r1", folder="demo/t1", what="same")]
    assert pointers(shelf) == pointers(shelf, ["r1", "r1"]) == [Pointer("r1", "demo", "t1", manifest)]
    assert pointers(shelf, ["r2"]) == pointers(shelf, []) == []


def test_what_a_killed_writer_left_empty_is_written_again(workspace, place):
    address, shelf = place
    evidence_transfer.push(workspace, address, [])
    pointer = pointers(shelf, ["run-b"])[0]
    for key in (object_key(pointer.manifest), pointer.key):
        shelf.put(key, b"", sha(b""))
    assert {item.kind for item in evidence_transfer.verify(address, [])[2]} == {"changed"}
    assert sorted(item.what for item in evidence_transfer.push(workspace, address, [])) == ["new", "same", "same"]
    assert evidence_transfer.verify(address, [])[::2] == (3, [])


def test_equal_files_of_two_folders_are_kept_and_read_once(shelf, sealed, spec, tmp_path):
    other = spec.model_copy(update={"trial_id": "t2", "final": str(tmp_path / "demo" / "t2")})
    shutil.copytree(sealed.path, tmp_path / "demo" / ".partial")
    (tmp_path / "demo" / ".partial" / "manifest.json").unlink()
    second = TrialFolder(seal(TrialFolder(tmp_path / "demo" / ".partial"), other, "succeeded"))
    assert [one.objects for one in push(shelf, [sealed, second])] == [4, 1]
    assert [(one[1], one[2]) for one in check(shelf, pointers(shelf))] == [(3, []), (0, [])]


def test_what_is_wrong_in_a_store_is_told_object_by_object(shelf, pointer):
    def damage():
        ((_, _, found),) = check(shelf, [pointer])
        return [(one.trial, one.file, one.kind, one.detail) for one in found]

    root = Path(shelf.name)
    assert damage() == []
    x = root / object_key(sha(b"x"))
    x.write_bytes(b"z")
    (root / object_key(sha(b"yy"))).unlink()
    assert damage() == [
        ("demo/t1", "a.txt", "changed", f"sha256 {sha(b'z')[:12]}, sealed as {sha(b'x')[:12]}"),
        ("demo/t1", "sub/b.txt", "missing", f"object {sha(b'yy')[:12]} is missing"),
    ]
    (root / pointer.key).write_text("x")
    assert damage()[0] == ("demo/t1", pointer.key, "changed", "its text does not fit its name")
    (root / object_key(pointer.manifest)).unlink()
    assert [one[1:] for one in damage()][1:] == [
        ("manifest.json", "missing", f"object {pointer.manifest[:12]} is missing"),
    ]
    (root / pointer.key).unlink()
    assert [one[1:3] for one in damage()] == [(pointer.key, "missing"), ("manifest.json", "missing")]


def test_what_the_disk_does_not_give_is_unreadable(shelf, pointer):
    path = Path(shelf.name) / object_key(sha(b"x"))
    path.unlink()
    path.mkdir()
    ((_, _, damage),) = check(shelf, [pointer])
    assert [(one.file, one.kind) for one in damage] == [("a.txt", "unreadable")]
    assert "Is a directory" in damage[0].detail


def test_a_pull_brings_a_whole_folder_or_none(shelf, pointer, tmp_path):
    results = tmp_path / "results"
    new = Carried(run_id="r1", folder="demo/t1", what="new", objects=4, size=3)
    assert list(pull(shelf, results, [pointer], dry_run=True)) == [new] and not results.exists()
    assert list(pull(shelf, results, [pointer])) == [new]
    here = TrialFolder(results / "demo" / "t1")
    assert verify(here, pointer.manifest) == []
    assert [path.name for path in (results / "demo").iterdir()] == ["t1"]
    assert list(pull(shelf, results, [pointer])) == [Carried(run_id="r1", folder="demo/t1", what="same")]
    (here.path / "a.txt").write_text("z")
    (here.path / "more").touch()
    (refused,) = pull(shelf, results, [pointer])
    detail = f"sha256 {sha(b'z')[:12]}, sealed as {sha(b'x')[:12]}"
    assert (refused.what, refused.reason) == (
        "refused", f"another one is here: a.txt: changed ({detail}) and 1 more",
    )  # fmt: skip
    shutil.rmtree(here.path)
    (Path(shelf.name) / object_key(sha(b"x"))).unlink()
    (refused,) = pull(shelf, results, [pointer])
    assert (refused.what, refused.run_id) == ("refused", "r1")
    assert refused.reason == f"a.txt: object {sha(b'x')[:12]} is missing in {shelf.name}"
    assert list((results / "demo").iterdir()) == []


def test_what_is_pulled_is_on_disk_before_it_has_its_name(shelf, pointer, tmp_path, disk):
    list(pull(shelf, tmp_path / "results", [pointer]))
    *before, rename, named = disk
    assert rename.startswith("rename results/demo/.pull-t1.") and rename.endswith(" results/demo/t1")
    assert named == "sync results/demo"
    pulled = rename.split()[1]
    names = ("", "/a.txt", "/empty.txt", "/sub", "/sub/b.txt", "/manifest.json")
    assert {f"sync {pulled}{name}" for name in names} <= set(before)
    assert "sync results" in before, "the folder of the scenario is new too"


def test_a_shelf_that_keeps_other_bytes_than_it_was_given_is_found_at_once(sealed, tmp_path):
    class Lossy(DiskShelf):
        def put(self, key, source, sha256):
            super().put(key, b"lost", sha256)

    with pytest.raises(BenchError, match="right after it was written"):
        list(push(Lossy(tmp_path / "shelf"), [sealed]))
    assert pointers(Lossy(tmp_path / "shelf")) == []


def test_a_shelf_that_can_not_be_written_is_told_and_nothing_half_is_left(shelf, tmp_path):
    (tmp_path / "shelf" / "objects" / "ab" / "taken" / "x").mkdir(parents=True)
    with pytest.raises(BenchError, match="can't write"):
        shelf.put("objects/ab/taken", b"x", "")
    assert [path.name for path in (tmp_path / "shelf" / "objects" / "ab").iterdir()] == ["taken"]
    (tmp_path / "shelf" / ".hidden").touch()
    assert keys_of(shelf, "") == []
