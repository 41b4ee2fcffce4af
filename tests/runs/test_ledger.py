"""The ledger: only whole lines count, and one process at a time owns a run."""

import os
import signal
import time

import pytest

from benchhouse.runs.cleanup import leftovers
from benchhouse.runs.ledger import Ledger, RunRecord, list_runs, new_run_id
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.trial import ExperimentRef

REF = ExperimentRef(name="e", version="1", object="e:e", distribution="e", distribution_version="1")


def make(workspace, run_id="20260101-000000-abcdef"):
    record = RunRecord(
        run_id=run_id, scenario="s", scenario_file="s.yaml", created="", plan_digest="0" * 64, points=1, trials=1,
        experiment=REF, executor="local", runtime="process", host="h", command=[],
    )  # fmt: skip
    return Ledger.create(workspace, record, {"scenario": "scenario: s\n"})


@pytest.fixture
def workspace(tmp_path):
    return WorkspaceFolder(tmp_path)


@pytest.fixture
def ledger(workspace):
    return make(workspace)


def test_a_torn_line_is_ignored_and_the_next_one_begins_afresh(ledger):
    ledger.tell("started")
    ledger.release()
    with ledger.folder.events.open("ab") as file:
        file.write(b'{"time": "2026-01-01T00:00')
    again = Ledger(ledger.folder)
    again.tell("resumed")
    assert [event.event for event in again.events()] == ["started", "resumed"]


def test_what_a_newer_version_says_more_of_an_event_does_not_hide_it(ledger):
    ledger.tell("started")
    with ledger.folder.events.open("a") as file:
        file.write('{"time": "2026-01-01T00:00", "event": "ended", "trial_id": "t", "weather": {"wind": 3}}\n')
    unread: list[str] = []
    assert [(event.event, event.trial_id) for event in ledger.events(unread)] == [("started", None), ("ended", "t")]
    assert unread == []
    with pytest.raises(ValueError, match="weather"):  # what we write ourselves is held to what there is
        ledger.tell("ended", weather="fine")


def test_events_that_only_a_newer_version_knows_are_counted_and_torn_lines_are_not(ledger):
    ledger.tell("started")
    newer = '{"time": "2026-01-01T00:00", "event": "archived"}\n'
    with ledger.folder.events.open("a") as file:
        file.write(f'{{"time": "2026-01-01T00:00\n{newer}12\n\n')
    unread: list[str] = []
    assert [event.event for event in ledger.events(unread)] == ["started"]
    assert unread == [newer]


def test_events_of_a_run_that_never_began_are_none(ledger):
    assert list(ledger.events()) == []


def test_a_run_has_one_owner_and_it_goes_with_the_process(ledger):
    assert ledger.owner() is None
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        Ledger(ledger.folder).own()
        os.write(writer, b"x")
        time.sleep(60)
    os.read(reader, 1)
    try:
        assert ledger.owner() == pid
        with pytest.raises(BenchError, match=f"being worked on by process {pid}") as found:
            ledger.own()
        assert f"bench stop {ledger.folder.run_id}" in found.value.hint
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ledger.owner() is None
    ledger.own()
    ledger.release()


def test_the_pid_of_an_earlier_owner_is_never_told(ledger):
    """Between taking the lock and writing its own name, a new owner stands beside the old one's."""
    import fcntl

    ledger.folder.lock.write_text("p999999-s1-n1")
    with ledger.folder.lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            os._exit(Ledger(ledger.folder).owner() or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 999999 % 256)


def test_looking_does_not_get_in_the_way_of_owning(ledger):
    pid = os.fork()
    if pid == 0:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            Ledger(ledger.folder).owner()
        os._exit(0)
    try:
        for _ in range(50):
            ledger.own()
            ledger.release()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_ledger_that_can_not_be_written_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match="can't write") as found:
        make(WorkspaceFolder(tmp_path / "file"))
    assert "bench -C DIR" in found.value.hint


def test_a_missing_run_is_named(workspace):
    with pytest.raises(BenchError, match="run gone was not made in this workspace"):
        Ledger(workspace.run("gone")).record  # noqa: B018 - reading it is what fails


def test_ids_sort_by_time_and_unfinished_folders_are_no_runs(workspace, ledger):
    assert new_run_id() < f"{int(new_run_id()[:4]) + 1}"
    (workspace.runs / "half").mkdir()
    assert list_runs(workspace) == [ledger.folder.run_id]


def test_leftovers_are_those_of_runs_that_nobody_works_on(workspace, ledger):
    other = make(workspace, "20260101-000000-bbbbbb")
    home = workspace.results / "s" / ".partial"
    (home / "in-the-making.1").mkdir(parents=True)
    assert [path.name for path in leftovers(workspace, "s", ledger.folder.run_id)] == ["in-the-making.1"]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        Ledger(other.folder).own()
        os.write(writer, b"x")
        time.sleep(60)
    os.read(reader, 1)
    try:
        assert leftovers(workspace, "s", ledger.folder.run_id) == []
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert leftovers(workspace, "elsewhere", ledger.folder.run_id) == []


def test_a_run_is_made_whole_or_not_at_all(workspace, monkeypatch, leave_behind):
    leave_behind(workspace.runs, "20260101-000000-abcdef")
    with monkeypatch.context() as patch:
        patch.setattr("benchhouse.runs.ledger.write_model", lambda *_: os.stat("/not there"))
        with pytest.raises(BenchError, match="can't write"):
            make(workspace)
    assert list(workspace.runs.iterdir()) == []
    made = make(workspace)
    assert list_runs(workspace) == [path.name for path in workspace.runs.iterdir()] == [made.folder.run_id]


def test_an_owner_that_can_not_be_seen_is_not_taken_for_none(ledger, monkeypatch):
    assert ledger.owner() is None
    ledger.own()

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(PermissionError):
        Ledger(ledger.folder).owner()
