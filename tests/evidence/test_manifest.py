"""What a manifest says of each file, and which names it may hold."""

import hashlib
import json

import pytest
from pydantic import ValidationError
from tables import check_rows

from benchhouse.evidence.manifest import Manifest, ManifestEntry, describe_file, list_files, walk
from benchhouse.schema.digests import digest

ENTRY = {"sha256": "0" * 64, "bytes": 1}


def manifest(**files) -> Manifest:
    return Manifest(
        trial_id="t1", run_id="r1", scenario="demo", outcome="succeeded", sealed="2026-01-01T00:00:00.000+00:00",
        files=files,
    )  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 2, (256 << 10) - 1, 256 << 10, (512 << 10) + 5])
def test_a_file_of_any_size_is_hashed_whole(tmp_path, open_files, size):
    content = bytes(at % 251 for at in range(size))
    (tmp_path / "file").write_bytes(content)
    entry = describe_file(str(tmp_path / "file"))
    assert entry == ManifestEntry(sha256=hashlib.sha256(content).hexdigest(), bytes=size)


def test_a_file_is_on_disk_once_it_is_described_for_a_seal(tmp_path, disk):
    (tmp_path / "full").write_text("x")
    (tmp_path / "empty").touch()
    for name in ("full", "empty"):
        describe_file(str(tmp_path / name), sync=True)
        describe_file(str(tmp_path / name))
    assert disk == ["sync full"]


def test_links_are_files_and_the_manifest_is_not_listed(tmp_path):
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "c").touch()
    (tmp_path / "b" / "manifest.json").touch()
    (tmp_path / "manifest.json").touch()
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert list_files(tmp_path) == ["a", "b/deep/c", "b/manifest.json"]
    files, folders = walk(str(tmp_path))
    assert sorted(files) == ["a", "b/deep/c", "b/manifest.json", "manifest.json"]
    assert folders == ["b", "b/deep"]
    assert walk(str(tmp_path / "nowhere"), lenient=True) == ([], [])
    with pytest.raises(FileNotFoundError):
        walk(str(tmp_path / "nowhere"))


def test_no_name_leads_out_of_the_folder():
    rows = ["", "/a", "a/", "a//b", ".", "./a", "a/.", "..", "../a", "a/../b", "a\0b"]

    def check(name):
        with pytest.raises(ValidationError, match="is a file outside of its folder"):
            manifest(**{name: ENTRY})

    check_rows(check, rows)


def test_names_that_only_look_odd_are_names():
    assert list(manifest(**{"a/b.c": ENTRY, "..a": ENTRY, "a..": ENTRY, ".b": ENTRY}).files) == [
        "a/b.c", "..a", "a..", ".b",
    ]  # fmt: skip


def test_a_digest_is_a_digest():
    rows = ["0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61]

    def check(sha256):
        with pytest.raises(ValidationError):
            ManifestEntry(sha256=sha256, bytes=1)

    check_rows(check, rows)


def test_a_manifest_carries_the_digest_of_its_own_fields():
    signed = manifest(a=ENTRY).signed_off()
    content = json.loads(signed.text())
    assert signed.text().startswith("{\n  ") and signed.text().endswith("}\n")
    assert content.pop("self_digest") == digest(content) == signed.signed_off().self_digest
    assert manifest().self_digest == ""
