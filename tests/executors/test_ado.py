"""The executor that submits a run to ado, as far as it goes without ado: the real thing is in tests/bridges."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from benchhouse.executors import ado
from benchhouse.executors.ado import AdoExecutor
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import RunFolder
from benchhouse.schema.protocols import Assignment, Job
from benchhouse.schema.resources import Resources


@pytest.fixture
def told():
    return []


@pytest.fixture
def executor(tmp_path, told):
    made = AdoExecutor(Assignment(parallel=2, run=RunFolder(tmp_path / "run"), say=told.append))
    yield made
    made.close()


def job(tmp_path, name="one"):
    (tmp_path / name).mkdir()
    return Job(name, tmp_path / name, (sys.executable,), Resources(), tmp_path / f"{name}.log")


def until_done(executor, name):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if (state := executor.poll([name], 1.0)[name]).phase == "done":
            return state
    pytest.fail(f"{name} is still running")


def test_an_operation_that_fails_gives_its_last_words(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(ado, "_command", lambda folder: [sys.executable, "-c", "raise SystemExit('no store')"])
    executor.submit([job(tmp_path)])
    assert "ado's operation ended without it: no store (see " in until_done(executor, "one").reason


def test_a_trial_is_done_when_its_folder_was_moved(executor, tmp_path, monkeypatch):
    code = "import os; os.rename('{0}', '{0}.sealed')".format(tmp_path / "one")
    monkeypatch.setattr(ado, "_command", lambda folder: [sys.executable, "-c", code])
    executor.submit([job(tmp_path)])
    assert until_done(executor, "one").reason == ""


def test_every_step_of_an_operation_is_told_once_while_it_starts(executor, tmp_path, monkeypatch, told):
    """With ado's own words, in pieces and with much in between; `tests/bridges` has them from the real one."""
    one, goes_on = job(tmp_path), tmp_path / "goes-on"
    code = (
        "import os, time\n"
        "print('Success! Created space with identifier: space-1-default\\nINFO: x\\nSuccess! Created sp', end='')\n"
        f"while not os.path.exists({str(goes_on)!r}): time.sleep(0.05)\n"
        "print('ace\\nINFO worker.py:2029 -- Started a local Ray instance.\\n==== Starting Operation walk-7 ====')\n"
        f"os.rename({str(one.folder)!r}, {str(one.folder)!r} + '.sealed')\n"
    )
    monkeypatch.setattr(ado, "_command", lambda folder: [sys.executable, "-c", code])
    executor.submit([one])
    assert told == ["ado: starting an operation, which takes a while ..."]
    deadline = time.monotonic() + 120
    while len(told) == 1 and time.monotonic() < deadline:
        executor.poll(["one"], 0.1)
    assert told[1:] == ["ado: space-1-default is made; Ray starts ..."]
    goes_on.touch()
    until_done(executor, "one")
    executor.close()
    executor.poll(["one"], 0.0)
    assert "ado: walk-7 measures 1 point ..." in told and len(told) == len(set(told))


def test_a_cancelled_operation_ends_with_all_that_it_started(executor, tmp_path, monkeypatch):
    """As Ray's servers do, the second process leaves its parent."""
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(ado, "_command", lambda folder: [sys.executable, "-c", code])
    executor.submit([job(tmp_path)])
    deadline = time.monotonic() + 120
    while not (pids.exists() and pids.read_text()):
        assert time.monotonic() < deadline
        executor.poll(["one"], 0.1)
    executor.cancel(["one"])
    assert executor.poll(["one"], 0.0)["one"].reason == "cancelled"
    with pytest.raises(ProcessLookupError), contextlib.suppress(PermissionError):
        os.kill(int(pids.read_text()), 0)


def test_what_an_operation_can_not_give_is_refused(executor, monkeypatch):
    with pytest.raises(BenchError, match="2 nodes"):
        executor.check(Resources(nodes=2))
    monkeypatch.setattr(ado, "find_spec", lambda name: None)
    with pytest.raises(BenchError, match="ado is not installed"):
        executor.check(Resources())


def test_a_dry_run_shows_space_operation_and_command(executor, tmp_path):
    text = executor.render([job(tmp_path)], 3)
    assert "experimentIdentifier: trial" in text
    assert "# ... and 2 more values of `job`" in text
    assert text.splitlines()[-1].split()[1:3] == ["create", "operation"]


def test_an_operation_ends_when_whoever_asked_for_it_is_gone():
    whole = [sys.executable, "-m", "benchhouse.executors.ado_operation", "sleep", "600"]
    process = subprocess.Popen(whole, stdin=subprocess.PIPE)
    process.stdin.close()
    assert process.wait(timeout=120) == 130
