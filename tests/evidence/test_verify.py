"""Each kind of damage, with its words; what is found does not hide what comes after it."""

import hashlib
import json

from benchhouse.evidence import verify as module
from benchhouse.evidence.verify import Damage, is_as_signed, manifest_digest, verify
from benchhouse.schema.digests import digest, file_digest
from benchhouse.schema.layout import TrialFolder


def found(folder, *args, **options) -> list[tuple[str, str, str]]:
    return [(item.file, item.kind, item.detail) for item in verify(folder, *args, **options)]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_folder_that_is_as_sealed_has_no_damage(sealed):
    assert verify(sealed) == verify(sealed, manifest_digest(sealed)) == verify(sealed, part=True) == []
    assert manifest_digest(sealed) == hashlib.sha256(sealed.manifest.read_bytes()).hexdigest()


def test_a_folder_that_is_gone_or_was_never_sealed(sealed):
    gone = TrialFolder(sealed.path / "nowhere")
    assert verify(gone) == [Damage(trial="nowhere", file=".", kind="missing", detail="the whole folder is gone")]
    sealed.manifest.unlink()
    assert verify(sealed) == [
        Damage(trial="t1", file="manifest.json", kind="unsealed", detail="no manifest: never finished")
    ]


def test_another_manifest_than_was_collected(sealed):
    here = manifest_digest(sealed)[:12]
    assert found(sealed, "f" * 64) == [("manifest.json", "changed", f"sha256 {here}, collected as {'f' * 12}")]


def test_a_manifest_that_can_not_be_read(sealed):
    sealed.manifest.write_text("{")
    (said,) = found(sealed)
    assert said[:2] == ("manifest.json", "unreadable") and "\n" not in said[2] and said[2]
    assert [item.kind for item in verify(sealed, "f" * 64)] == ["changed", "unreadable"]


def test_a_manifest_with_other_white_space(sealed):
    sealed.manifest.write_bytes(sealed.manifest.read_bytes() + b"\n")
    assert found(sealed) == [("manifest.json", "changed", "its bytes do not match its own digest")]


def test_all_that_changed_is_named_in_order(sealed):
    (sealed.path / "a.txt").write_text("z")
    (sealed.path / "sub" / "b.txt").unlink()
    for name in ("y", "x"):
        (sealed.path / name).touch()
    changed = ("a.txt", "changed", f"sha256 {sha('z')}, sealed as {sha('x')}")
    added = [("x", "added", ""), ("y", "added", "")]
    assert found(sealed) == [changed, ("sub/b.txt", "missing", ""), *added]
    assert found(sealed, part=True) == [changed, *added]
    assert {item.trial for item in verify(sealed)} == {"t1"}


def test_a_file_that_can_not_be_read_is_damage_and_the_others_are_checked_all_the_same(sealed, monkeypatch):
    def refuses(path):
        if path.name == "a.txt":
            raise PermissionError(13, "Permission denied")
        if path.name == "empty.txt":
            raise OSError("no number")
        return file_digest(path)

    (sealed.path / "sub" / "b.txt").write_text("z")
    monkeypatch.setattr(module, "file_digest", refuses)
    assert found(sealed) == [
        ("a.txt", "unreadable", "Permission denied"),
        ("empty.txt", "unreadable", ""),
        ("sub/b.txt", "changed", f"sha256 {sha('z')}, sealed as {sha('yy')}"),
    ]


def test_a_link_to_the_same_bytes_is_not_the_file(sealed, tmp_path):
    (sealed.path / "a.txt").rename(tmp_path / "away")
    (sealed.path / "a.txt").symlink_to(tmp_path / "away")
    assert found(sealed) == [("a.txt", "changed", f"sha256 (no file), sealed as {sha('x')}")]


def test_a_manifest_is_held_against_its_own_digest(sealed):
    content = sealed.manifest.read_bytes()
    assert is_as_signed(content)
    fields = json.loads(content)
    del fields["self_digest"]
    fields["later"] = "é"
    signed = fields | {"self_digest": digest(fields)}
    assert is_as_signed((json.dumps(signed, indent=2, ensure_ascii=False) + "\n").encode())
    forged = signed | {"later": "e"}
    for text in (
        json.dumps(signed) + "\n",
        json.dumps(forged, indent=2) + "\n",
        json.dumps(fields),
        "[]\n",
        "3\n",
        "{",
    ):
        assert not is_as_signed(text.encode())
