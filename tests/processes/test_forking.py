"""A process forked for a keeper has nothing of its parent but memory, and never goes on in the parent's code."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from laboratory import wait_until
from services.small_server import recipe

from benchhouse.processes.forking import can_fork, fork
from benchhouse.processes.process_identity import OWNER
from benchhouse.runs.service_control import start_keeper, stop_keepers, wait_ready
from benchhouse.schema.recipe import Recipe
from benchhouse.schema.service import ServiceFolder, ServiceSpec
from benchhouse.worker.service_supervisor import keep


@pytest.fixture
def run(tmp_path):
    """Forks `work`; its end, and what it printed."""

    def it(work, **more):
        child = fork(work, tmp_path / "words", **more)
        wait_until(lambda: child.poll() is not None, "the child to end")
        return child.returncode, (tmp_path / "words").read_text()

    return it


def say(text):
    os.write(1, f"{text}\n".encode())


def test_nothing_of_the_parent_is_open_but_three_descriptors(run, tmp_path):
    with (tmp_path / "kept").open("w"):
        code, said = run(lambda: say(sorted(int(name) for name in os.listdir("/proc/self/fd"))))
    assert code == 0 and said == "[0, 1, 2, 3]\n", "3 is the list itself"


def test_a_lock_of_the_parent_is_free_when_the_parent_lets_go(tmp_path):
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = fork(lambda: (say("here"), time.sleep(60)), tmp_path / "words")
        wait_until(lambda: (tmp_path / "words").exists() and (tmp_path / "words").read_text(), "the child to start")
    try:
        with (tmp_path / "lock").open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: child.poll() is not None, "the child to end")
    assert child.returncode == -signal.SIGKILL


def test_it_has_a_session_of_its_own_and_no_handler_of_the_parent(run, monkeypatch):
    monkeypatch.setenv("MARK", "ours")
    before, masked = signal.signal(signal.SIGUSR1, lambda *_: None), signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        code, said = run(
            lambda: say([os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGUSR1).name, "MARK" in os.environ]),
            without=["MARK"],
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (code, said) == (0, "[True, 'SIG_DFL', False]\n")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == masked, "the parent takes signals as before"
    assert os.environ["MARK"] == "ours"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_is_raised_ends_the_child_and_is_told(run, error):
    def fail():
        raise error("too much")

    code, said = run(fail)
    assert code == 1 and f"{error.__name__}: too much" in said


def test_a_ctrl_c_while_it_forks_ends_the_child_too(tmp_path):
    """In a process of its own: beside threads a signal may come at any moment, and nothing is forked there."""
    script = f"""
import os, signal, time
from pathlib import Path
from benchhouse.processes.forking import fork
forked, real = [], os.fork
signal.pthread_sigmask(signal.SIG_SETMASK, [])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
def fork_and_be_interrupted():
    if pid := real():
        forked.append(pid)
        os.kill(os.getpid(), signal.SIGINT)
    return pid
os.fork = fork_and_be_interrupted
try:
    fork(lambda: time.sleep(60), Path({str(tmp_path / "words")!r}))
except KeyboardInterrupt:
    print("interrupted", os.waitpid(forked[0], 0)[1], signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"interrupted {int(signal.SIGTERM)} set()\n"


def test_it_does_not_fork_beside_another_thread():
    script = "import threading; from benchhouse.processes.forking import can_fork\nprint(can_fork())\n"
    script += "threading.Thread(target=threading.Event().wait, daemon=True).start(); print(can_fork())"
    environment = {key: value for key, value in os.environ.items() if key != OWNER}
    for mark, said in (({}, "True\nFalse\n"), ({OWNER: "p1-s1-n1"}, "False\nFalse\n")):
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment | mark, capture_output=True, text=True, check=True
        )
        assert done.stdout == said


def test_a_process_with_threads_starts_its_keeper_as_a_program(tmp_path):
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    folder = ServiceFolder(tmp_path / "kept")
    try:
        assert not can_fork()
        pid = start_keeper(folder, ServiceSpec(id="small", recipe=Recipe.model_validate(recipe("answer"))), keep)
        wait_ready({"small": folder}, lambda text: None)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            assert b"--keep" in file.read()
    finally:
        assert stop_keepers([folder]) == []
        over.set()
        thread.join()
