"""What a worker hands on from one trial to the next, and what it doesn't."""

import os
import time

import pytest

from benchhouse.processes.owned_names import Scratch, sweep_temporaries, temporary_name


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = Scratch("benchhouse-test")
    yield made
    made.remove()


def test_a_scratch_that_was_left_empty_is_handed_on_without_the_last_result(scratch):
    scratch.result.write_text("{}")
    assert scratch.renew()
    assert scratch.result.read_bytes() == b""
    assert os.listdir(scratch.work) == []


def test_a_trial_that_ended_without_a_result_leaves_a_scratch_for_the_next(scratch):
    assert scratch.renew()


@pytest.mark.parametrize(
    "leave",
    [
        lambda scratch: (scratch.work / "left").touch(),
        lambda scratch: (scratch.folder / "services").mkdir(),
        lambda scratch: scratch.work.chmod(0o777),
        lambda scratch: scratch.work.rmdir(),
        lambda scratch: scratch.result.symlink_to("/etc/hostname"),
        lambda scratch: scratch.result.mkdir(),
    ],
    ids=["a file", "a folder", "other rights", "no folder", "a link", "a folder as result"],
)
def test_a_scratch_in_which_a_trial_left_anything_is_not_handed_on(scratch, leave):
    leave(scratch)
    assert not scratch.renew()


def test_a_result_that_is_also_another_file_is_not_emptied(scratch, tmp_path):
    other = tmp_path / "other"
    other.write_text("kept")
    scratch.result.hardlink_to(other)
    assert not scratch.renew()
    assert other.read_text() == "kept"


def test_a_removed_scratch_leaves_nothing(scratch, tmp_path):
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_unfinished_goes_and_that_of_a_living_one_stays(tmp_path, leave_behind):
    left = leave_behind(tmp_path)
    mine, strange = tmp_path / temporary_name("x.json"), tmp_path / ".x.json.1.tmp"
    for path in (mine, strange):
        path.touch()
    assert sweep_temporaries(tmp_path) == [left.name]
    assert sorted(tmp_path.glob(".*")) == sorted([mine, strange])
    assert sweep_temporaries(tmp_path / "not there") == []


def test_an_unfinished_folder_goes_too(tmp_path, leave_behind):
    left = leave_behind(tmp_path, "run")
    left.unlink()
    (left / "worker_logs").mkdir(parents=True)
    assert sweep_temporaries(tmp_path) == [left.name]
    assert list(tmp_path.iterdir()) == []


def test_what_another_machine_writes_stays_until_it_is_old(tmp_path):
    theirs = tmp_path / f".x.json.{'0' * 12}-p1-s1-n4026531836.tmp"
    theirs.touch()
    assert sweep_temporaries(tmp_path) == []
    os.utime(theirs, (time.time() - 4000,) * 2)
    assert sweep_temporaries(tmp_path) == [theirs.name]
