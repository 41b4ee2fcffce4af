"""Load processes that die: a fixture that kills some of those that a load has forked."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest
from laboratory import children, wait_until

from benchhouse.load.shards import Pulse


def _program(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.fixture
def kill_shards(monkeypatch: pytest.MonkeyPatch):
    """`kill_shards(1)` kills the last load process of the load that will be run, once it has a few good answers;
    `kill_shards(3, answers=0)` three of them as soon as they are there."""
    pulses: list[Pulse] = []
    make = Pulse.__init__

    def remember(pulse: Pulse, shards: int) -> None:
        make(pulse, shards)
        pulses.append(pulse)

    monkeypatch.setattr(Pulse, "__init__", remember)

    def kill(number: int, answers: int = 6, shards: int = 3) -> None:
        before = set(children(os.getpid()))

        def load_processes() -> list[int]:
            """Forks of this process; what was started with them, such as a mock server, is another program."""
            found = sorted(set(children(os.getpid())) - before)
            return [pid for pid in found if _program(pid) == _program(os.getpid())][-shards:]

        def begun() -> bool:
            if not pulses or len(load_processes()) < shards:
                return False
            return all(pulses[-1].last(shard, "", 0).answered >= answers for shard in range(shards))

        def work() -> None:
            wait_until(begun, "the load processes")
            for pid in load_processes()[-number:]:
                os.kill(pid, signal.SIGKILL)

        threading.Thread(target=work, daemon=True).start()

    return kill
