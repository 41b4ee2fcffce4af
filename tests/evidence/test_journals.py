"""Journals: lines that are whole, on disk, and never in each other's way."""

import fcntl
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchhouse.evidence import journals
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.telemetry import Phase

LINES = [Phase(name=name, begin_s=0.0, end_s=1.0) for name in "abc"]


def test_lines_are_appended_and_read_in_their_order(tmp_path):
    path = tmp_path / "deep" / "er" / "journal"
    journals.append(path, LINES[0], "bench x")
    journals.append(path, LINES[1:], "bench x")
    assert journals.read(path, Phase) == (LINES, 0)
    assert path.read_bytes().count(b"\n") == 3


def test_no_line_is_no_file(tmp_path):
    journals.append(tmp_path / "deep" / "journal", [], "bench x")
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_a_kill_has_torn_costs_only_itself(tmp_path):
    path = tmp_path / "journal"
    journals.append(path, LINES[0], "bench x")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:9])
    journals.append(path, LINES[1], "bench x")
    path.write_bytes(path.read_bytes() + b"\n  \n\xff\n")
    assert journals.read(path, Phase) == (LINES[:2], 2)


def test_a_line_is_on_disk_and_two_writers_take_turns(tmp_path, disk, monkeypatch):
    turns = []
    monkeypatch.setattr(fcntl, "flock", lambda file, how: turns.append((file.name, how)))
    journals.append(tmp_path / "journal", LINES, "bench x")
    assert disk == ["sync journal", "sync ."], "a new journal has its name on disk too"
    assert turns == [(str(tmp_path / "journal"), fcntl.LOCK_EX)]
    journals.append(tmp_path / "journal", LINES, "bench x")
    assert disk[2:] == ["sync journal"]


def test_what_can_not_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "journal"
    with pytest.raises(BenchError) as told:
        journals.append(path, LINES, "bench x")
    assert f"can't write {path}: " in told.value.message and "then: bench x" in told.value.hint
    assert told.value.exit_code == Exit.TRIAL_FAILED
    assert journals.note(path, LINES, "bench x") == f"the verdict was not kept: {told.value.message}"
    assert journals.note(tmp_path / "journal", LINES, "bench x") == ""
    assert journals.read(tmp_path / "journal", Phase) == (LINES, 0)


def test_no_journal_has_no_lines(tmp_path):
    assert journals.read(tmp_path / "nowhere", Phase) == journals.read(tmp_path, Phase) == ([], 0)


def test_a_journal_is_rotated_before_it_is_too_large_and_the_oldest_lines_go(tmp_path):
    path = tmp_path / "journal"
    size = len(LINES[0].model_dump_json()) + 1
    lines = [Phase(name="p", begin_s=float(number), end_s=1.0) for number in range(10)]  # all of the same size
    for line in lines[:5]:
        journals.append(path, line, "bench x", rotate_at=2 * size)
    files = [file for file in journals.rotated(path) if file.exists()]
    assert [len(journals.read(file, Phase)[0]) for file in files] == [2, 2, 1]
    assert [line for file in files for line in journals.read(file, Phase)[0]] == lines[:5]
    for line in lines * 3:
        journals.append(path, line, "bench x", rotate_at=2 * size)
    kept = [line for file in journals.rotated(path) for line in journals.read(file, Phase)[0]]
    assert kept == (lines * 3)[-len(kept) :] and len(kept) in (15, 16) and len(list(tmp_path.iterdir())) == 8


def test_writers_that_rotate_at_the_same_time_lose_no_line(tmp_path):
    path = tmp_path / "journal"

    def write(writer):
        for number in range(50):
            journals.append(path, Phase(name=f"{writer}.{number}", begin_s=0.0, end_s=1.0), "bench x", rotate_at=4000)

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    names = [line.name for file in journals.rotated(path) for line in journals.read(file, Phase)[0]]
    assert sorted(names) == sorted(f"{writer}.{number}" for writer in range(4) for number in range(50))
    for writer in range(4):
        assert [name for name in names if name.startswith(f"{writer}.")] == [f"{writer}.{n}" for n in range(50)]
