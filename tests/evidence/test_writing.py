"""Files that are whole or not there, on disk when they have their name; and the time."""

import os
import stat
from datetime import UTC, datetime, timedelta

import pytest
from tables import check_rows

from benchhouse.evidence.writing import (
    after,
    clock_change,
    now,
    replacing,
    write_fresh,
    write_model,
    write_text,
)
from benchhouse.processes.durable import sync
from benchhouse.processes.owned_names import temporary_name
from benchhouse.schema.telemetry import Phase


def test_a_time_after_another_is_written_alike():
    assert after("2026-10-31T23:59:59.250+00:00", 1.5) == "2026-11-01T00:00:00.750+00:00"
    assert len(now()) == len("2026-10-31T23:59:59.250+00:00") and now().endswith("+00:00")


def test_a_clock_that_was_set_is_told_by_how_much():
    """By the clock it is earlier, or later, than it has to be."""
    rows = [(3600, "-3,600 s"), (-3600, "+3,600 s"), (2.45, "-2 s"), (-2.45, "+2 s"), (1.5, "")]

    def check(seconds, said):
        expected = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
        assert clock_change(expected) == said
        assert clock_change(now()) == ""

    check_rows(check, rows)


def fail(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_file_that_could_not_be_written_is_as_it_was_and_nothing_is_left_beside_it(tmp_path, monkeypatch, call):
    path = tmp_path / "x.json"
    write_text(path, "before")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(f"os.{call}", fail)
        write_text(path, "after")
    assert [item.read_text() for item in tmp_path.iterdir()] == ["before"]


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.tar"
    with replacing(path) as temporary:
        temporary.write_text("before")
    with pytest.raises(OSError, match="No space left"), replacing(path) as temporary:
        temporary.write_text("half")
        fail()
    assert [item.read_text() for item in tmp_path.iterdir()] == ["before"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, open_files):
    path = tmp_path / "file"
    write_text(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "after \ud800")
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, disk, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "a", "1")
    write_text("b", "2", sync=False)
    assert disk == ["sync .a.OURS.tmp", "rename .a.OURS.tmp a", "sync .", "rename .b.OURS.tmp b"]
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("1", "2")
    sync(tmp_path / "a")
    assert disk[4:] == ["sync a"]


def test_a_disk_that_takes_a_byte_at_a_time_gets_them_all(tmp_path, open_files, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:1]))
    write_text(tmp_path / "a", "añb")
    write_fresh(tmp_path / "b", "añb")
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text() == "añb"


def test_a_shorter_text_leaves_nothing_of_what_a_killed_writer_left(tmp_path):
    (tmp_path / temporary_name("a")).write_text("a longer text")
    write_text(tmp_path / "a", "short")
    assert (tmp_path / "a").read_text() == "short"


def test_a_fresh_file_is_never_written_into_what_stood_there(tmp_path, disk):
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    write_fresh(tmp_path / "link", "new")
    write_fresh(tmp_path / "file", "new")
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert (tmp_path / "link").read_text() == (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()
    assert disk == []


def test_others_may_read_what_is_written(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "a", "")
        write_fresh(tmp_path / "b", "")
        write_fresh(tmp_path / "b", "again")
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"} == {0o644}


def test_a_model_is_written_as_indented_lines(tmp_path, disk):
    phase = Phase(name="p", begin_s=0.0, end_s=1.5)
    write_model(tmp_path / "a", phase)
    write_model(tmp_path / "b", phase, sync=False)
    text = (tmp_path / "a").read_text()
    assert text.startswith('{\n  "') and text.endswith("}\n")
    assert Phase.model_validate_json(text) == phase
    assert disk == ["sync .a.OURS.tmp", "rename .a.OURS.tmp a", "sync .", "rename .b.OURS.tmp b"]
