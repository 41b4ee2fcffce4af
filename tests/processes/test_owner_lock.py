"""Who holds a lock is ended, and nobody else who happens to have the same number."""

import re
import subprocess

import pytest

from benchhouse.processes.owner_lock import OwnerLock, interrupt
from benchhouse.processes.process_identity import identity
from benchhouse.schema.errors import BenchError


@pytest.fixture
def lock(tmp_path):
    lock = OwnerLock(tmp_path / "lock")
    assert lock.take()
    yield lock
    lock.release()


def test_a_process_of_another_container_or_machine_is_told_and_its_number_is_not_signalled(lock, tmp_path):
    path, neighbour = tmp_path / "lock", subprocess.Popen(["sleep", "60"])
    try:
        name = re.sub(r"^p\d+", f"p{neighbour.pid}", identity())
        for elsewhere in (re.sub(r"n\d+$", "n1", name), re.sub(r"s\d+", "s1", name)):
            path.write_text(elsewhere)
            assert OwnerLock(path).owner() == 0
            with pytest.raises(BenchError, match="run r is being worked on by a process of another machine or") as told:
                interrupt(OwnerLock(path).owner, "run r", 0.2)
            assert "kill" not in told.value.hint and neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()


def test_one_that_ends_while_we_look_is_no_error():
    gone = subprocess.Popen(["true"])
    gone.wait()
    answers = iter([gone.pid, None])
    assert interrupt(lambda: next(answers), "run r", 5.0) == gone.pid
    assert interrupt(lambda: None, "run r", 5.0) is None
