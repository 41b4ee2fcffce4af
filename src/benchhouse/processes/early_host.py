"""A worker host that is forked from this process ahead of time, so that it need not start Python and import our models.

It is forked before anything else is imported: its trials begin with what those of a new process would have, and with
nothing of an experiment. It is the same program, `python -m benchhouse.worker --host`, and waits to be asked for. Where
this process can't be forked, or nobody asks in time, a new process is started as ever.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

from benchhouse.processes.forking import can_fork, fork
from benchhouse.processes.owner import OWNER, identity, show_as

PROGRAM = ("benchhouse.worker", "--host")
_WAITS_S = 60.0
_ANSWERS_S = 5.0
_THERE = b"+"


class EarlyHost:
    """As of a Popen, as far as an executor needs one."""

    def __init__(self) -> None:
        asked, asks = os.pipe2(os.O_CLOEXEC)
        hears, told = os.pipe2(os.O_CLOEXEC)
        self.words: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - for its life
        owner = identity()
        try:
            self._child = fork(lambda: _wait_and_serve(owner), self.words.fileno(), stdin=asked, stdout=told)
        finally:
            os.close(asked)
            os.close(told)
        self.stdin, self.stdout = os.fdopen(asks, "wb"), os.fdopen(hears, "rb", buffering=0)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    def begin(self) -> bool:
        """Have it serve, with the environment and the folder of now; False where it has ended."""
        order = {"environment": dict(os.environ), "folder": str(Path.cwd())}
        with contextlib.suppress(OSError):
            ready = select.select([self.stdout], [], [], _ANSWERS_S)[0]
            if ready and os.read(self.stdout.fileno(), len(_THERE)) == _THERE:
                self.stdin.write(json.dumps(order).encode() + b"\n")
                self.stdin.flush()
                return True
        self.kill()
        return False

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + timeout if timeout is not None else None
        while (code := self._child.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("worker host", timeout or 0.0)
            time.sleep(0.002)
        return code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)


_waiting: EarlyHost | None = None


def make_ready() -> None:
    """Fork a host, to be taken soon: call it before anything is imported that is not for every trial."""
    global _waiting
    if _waiting is None and can_fork():
        _make_validators()
        _waiting = EarlyHost()


def take_early_host(python: tuple[str, ...]) -> EarlyHost | None:
    """The host that waits, where it is of that interpreter; only once."""
    global _waiting
    if _waiting is None or python != (sys.executable, "-P"):
        return None
    found, _waiting = _waiting, None
    return found if found.begin() else None


def _make_validators() -> None:
    """Of the files that orchestrator and worker both read or write, and what both import: made once for the two."""
    import yaml  # noqa: F401 - ado's descriptions need it, and every scenario

    from benchhouse.schema.measurement import MetricsFile
    from benchhouse.schema.telemetry import TelemetrySummary
    from benchhouse.schema.trial import Meta, TrialSpec

    for model in (TrialSpec, Meta, MetricsFile, TelemetrySummary):
        model.model_rebuild()


def _wait_and_serve(owner: str) -> None:
    if not show_as(("python", "-m", *PROGRAM), OWNER, owner):
        return
    os.write(1, _THERE)
    if not select.select([0], [], [], _WAITS_S)[0] or not (order := _read_line()):
        return
    began_in = ("", str(Path.cwd()), str(Path(sys.argv[0]).absolute().parent))
    if not sys.flags.safe_path and sys.path and sys.path[0] in began_in:
        del sys.path[0]  # as by -P: a json.py in the current folder is not ours to import
    given = json.loads(order)
    os.environ.clear()
    os.environ.update(given["environment"] | {OWNER: owner})
    os.chdir(given["folder"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.argv = [*PROGRAM, "--first"]
    import runpy

    runpy.run_module(PROGRAM[0], run_name="__main__", alter_sys=True)


def _read_line() -> bytes:
    """Byte by byte: what follows it is the program's own to read. Empty where the orchestrator has gone."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line if byte else b""
