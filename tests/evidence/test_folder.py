"""Trial folders: tidied, cleared of secrets, sealed in an order that a power cut can't spoil, and read again."""

import itertools
import os
import socket
import stat

import pytest

from benchhouse.evidence.folder import (
    LinkedFile,
    blank_secrets,
    discard,
    packages_of,
    read_manifest,
    read_packages,
    read_spec,
    seal,
    sealed_outcome,
    tidy,
    write_metrics_csv,
)
from benchhouse.evidence.verify import verify
from benchhouse.evidence.writing import write_model
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement
from benchhouse.schema.secrets import REDACTED
from benchhouse.schema.trial import Meta


def test_metrics_csv_has_a_line_for_each_measurement(tmp_path, spec):
    rows = [
        Measurement(metric="qps", stat="value", value=0.1, unit="1/s"),
        Measurement(
            metric="=wait", stat="p99", value=2.0, unit="ms", direction="lower", n=20, scope="node", window="first",
            error_bound=0.5, valid=False,
        ),
    ]  # fmt: skip
    write_metrics_csv(tmp_path / "metrics.csv", spec, rows)
    assert (tmp_path / "metrics.csv").read_text() == (
        "trial_id,run_id,metric,stat,value,unit,direction,n,scope,window,error_bound,valid\n"
        "t1,r1,qps,value,0.1,1/s,,1,trial,,,true\n"
        "t1,r1,'=wait,p99,2.0,ms,lower,20,node,first,0.5,false\n"
    )


def test_a_file_that_was_changed_since_is_not_linked_to(tmp_path):
    shared = LinkedFile()
    first, second, third = (tmp_path / name for name in "abc")
    shared.write(first, "text")
    shared.sealed_in(first)
    shared.write(second, "text")
    assert second.samefile(first)
    first.write_text("changed")
    shared.write(third, "text")
    assert (third.read_text(), first.read_text()) == ("text", "changed")
    first.unlink()
    third.unlink()
    shared.write(third, "text")
    assert third.read_text() == "text" and third.stat().st_nlink == 1


def test_tidy_leaves_plain_files_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b c\n.txt").write_text("x")
    assert tidy(tmp_path).changed == []
    assert (tmp_path / "a" / "b c\n.txt").read_text() == "x"


def test_tidy_takes_out_what_is_no_file_and_makes_the_rest_readable(tmp_path):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "in").write_text("x")
    (tmp_path / "closed" / "in").chmod(0o006)
    os.mkfifo(tmp_path / "closed" / "pipe")
    (tmp_path / "closed").chmod(0o010)
    (tmp_path / "link").symlink_to(tmp_path / "closed")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
        odd = "\udcff\udcfe"
        (tmp_path / odd).mkdir()
        (tmp_path / odd / "é").touch()
        assert sorted(tidy(tmp_path).changed) == [
            "\\udcff\\udcfe (renamed: its name was not UTF-8)",
            "closed/pipe (not a plain file, removed)",
            "link (not a plain file, removed)",
            "socket (not a plain file, removed)",
        ]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "\\udcff\\udcfe", "\\udcff\\udcfe/é", "closed", "closed/in",
    ]  # fmt: skip
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("closed", "closed/in")]
    assert modes == [0o710, 0o406]


def test_secrets_are_blanked_in_files_and_below_folders(tmp_path):
    for name, text in (("log", "a hunter2 b hunter2 swordfish"), ("logs/x/deep", "hunter2"), ("logs/other", "plain")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "log").chmod(0o444)
    (tmp_path / "logs" / "empty").touch()
    (tmp_path / "away").write_text("hunter2")
    (tmp_path / "logs" / "link").symlink_to(tmp_path / "away")
    places = [tmp_path / "log", tmp_path / "logs", tmp_path / "nowhere"]
    before = (tmp_path / "logs" / "other").stat().st_ino
    assert blank_secrets(places, []) == []
    assert blank_secrets(places, ["hunter2", "swordfish"]) == ["log", "deep"]
    assert (tmp_path / "log").read_text() == f"a {REDACTED} b {REDACTED} {REDACTED}"
    assert (tmp_path / "logs/x/deep").read_text() == REDACTED
    assert (tmp_path / "logs" / "other").stat().st_ino == before, "what holds none is not written"
    assert (tmp_path / "away").read_text() == "hunter2"
    assert not list(tmp_path.rglob("*.blanked"))


def test_a_secret_across_two_pieces_of_a_large_file_is_blanked(tmp_path):
    path = tmp_path / "large"
    for before in range((256 << 10) - 8, (256 << 10) + 2):
        path.write_bytes(b"." * before + b"hunter2" + b"." * 1000)
        assert blank_secrets([path], ["hunter2", "another"]) == ["large"]
        assert path.read_bytes() == b"." * before + REDACTED.encode() + b"." * 1000


def test_every_file_is_on_disk_before_the_manifest_and_the_manifest_before_the_rename(partial, spec, disk):
    (partial.path / "manifest.json").write_text("of an attempt that was killed")
    assert seal(partial, spec, "invalid") == TrialFolder(partial.path.parent / "t1").path
    assert disk == [
        "sync demo/.partial/a.txt",
        "sync demo/.partial/sub/b.txt",
        "sync demo/.partial/sub",
        "sync demo/.partial/.manifest.json.OURS.tmp",
        "rename demo/.partial/.manifest.json.OURS.tmp demo/.partial/manifest.json",
        "sync demo/.partial",
        "rename demo/.partial demo/t1",
        "sync demo",
    ]


@pytest.mark.parametrize("step", range(8))
def test_a_folder_that_is_discarded_while_it_is_sealed_is_whole_or_gone(partial, spec, monkeypatch, step):
    """A worker that was given up may still live. `step`: of those that reach the disk, the one before which it goes."""
    steps = itertools.count()

    def before(real):
        def call(*arguments):
            if next(steps) == step:
                discard(partial.path)
            return real(*arguments)

        return call

    for name in ("fsync", "rename", "replace"):
        monkeypatch.setattr(os, name, before(getattr(os, name)))
    final = TrialFolder(partial.path.parent / "t1")
    if step < 7:
        with pytest.raises(OSError):
            seal(partial, spec, "succeeded")
        assert list(final.path.parent.iterdir()) == []
    else:
        seal(partial, spec, "succeeded")
        assert verify(final) == []


def test_a_folder_that_is_being_removed_can_not_be_sealed_any_more(partial, spec, monkeypatch):
    real, refused = os.unlink, []

    def unlink(*arguments, **options) -> None:
        with pytest.raises(OSError):
            seal(partial, spec, "succeeded")
        refused.append(arguments)
        real(*arguments, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    discard(partial.path)
    assert len(refused) == 3
    assert list(partial.path.parent.iterdir()) == []


def test_a_sealed_folder_says_whose_it_is_and_what_is_in_it(sealed):
    manifest = read_manifest(sealed)
    assert (manifest.trial_id, manifest.run_id, manifest.scenario) == ("t1", "r1", "demo")
    assert {name: entry.bytes for name, entry in manifest.files.items()} == {"a.txt": 1, "empty.txt": 0, "sub/b.txt": 2}
    assert list(manifest.files) == sorted(manifest.files)
    assert verify(sealed) == []


def test_the_outcome_of_a_folder_that_is_not_sealed_is_none(sealed):
    assert sealed_outcome(sealed) == "succeeded"
    assert sealed_outcome(TrialFolder(sealed.path / "nowhere")) is None
    assert sealed_outcome(TrialFolder(sealed.path / "a.txt")) is None
    sealed.manifest.write_text("{")
    assert sealed_outcome(sealed) is None


def test_packages_stand_in_their_own_file_and_in_older_folders_in_meta(tmp_path, spec):
    folder = TrialFolder(tmp_path)
    meta = Meta.model_construct(packages={"old": "1"})
    assert read_packages(folder, meta) == {"old": "1"}
    folder.packages.write_text('{"new": "2"}')
    assert read_packages(folder, meta) == {"new": "2"}
    with pytest.raises(ValueError, match="dict"):
        packages_of(b"[]")
    write_model(folder.spec, spec)
    assert read_spec(folder) == spec
