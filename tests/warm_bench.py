"""`bench` in a process of its own, without the start of an interpreter: one that has imported all of it forks.

For verbs that read, and for runs that a test waits for, whose workers are started anew as ever. What tests signal, and
what keeps a process of its own, is really started: tests look for what they leave.
"""

import atexit
import json
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

READING = frozenset(["collect", "compare", "history", "list", "logs", "plan", "query", "report", "show", "status"])
READING |= {"claim", "evidence", "export", "gate", "trace", "validate", "verify", "warehouse", "why"}
READING |= {"audit", "baseline", "images", "import", "time", "token"}  # these write, and leave no process
KEEPING = frozenset(["monitors", "servers"])  # with `start`
RUNNING = frozenset(["run", "submit"])  # of a file


class WarmBench:
    """One helper a test process; it ends with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            lean = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # what forks has one thread
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=lean, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        self._one_at_a_time = threading.Lock()
        atexit.register(self._socket.close)

    def call(
        self, args: tuple[str, ...], folder: Path, environment: dict[str, str], timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        asked = json.dumps({"args": args, "folder": str(folder), "environment": environment}).encode()
        with self._one_at_a_time, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._socket, [len(asked).to_bytes(8)], [out.fileno(), err.fileno()])
            self._socket.sendall(asked)
            pid = int.from_bytes(self._heard(timeout_s), signed=True)
            try:
                code = int.from_bytes(self._heard(timeout_s), signed=True)
            except TimeoutError:
                os.kill(pid, 9)
                self._heard(timeout_s)
                raise subprocess.TimeoutExpired(args, timeout_s) from None
            texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
        return subprocess.CompletedProcess(args, code, *texts)

    def _heard(self, timeout_s: float) -> bytes:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            raise TimeoutError
        heard = self._socket.recv(8, socket.MSG_WAITALL)
        assert heard, "the process that forks for each call has ended"
        return heard


def _serve(control: socket.socket) -> None:
    _import_all()
    while True:
        head, files, _, _ = socket.recv_fds(control, 8, 2)
        if not head:
            return
        asked = json.loads(control.recv(int.from_bytes(head), socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            control.close()
            _be_bench(asked, files)
        for file in files:
            os.close(file)
        control.sendall(pid.to_bytes(8, signed=True))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        control.sendall(code.to_bytes(8, signed=True))


def _import_all() -> None:
    """What reading verbs and runs use; nothing of it starts a thread."""
    import importlib
    import pkgutil

    import duckdb as duckdb
    import numpy as numpy
    import pyarrow.parquet as parquet  # noqa: F401

    import benchhouse.api
    import benchhouse.cli.verbs
    import benchhouse.executors.local
    import benchhouse.report.terminal
    import benchhouse.runtimes.process
    import benchhouse.warehouse

    for package in (benchhouse.cli.verbs, benchhouse.api, benchhouse.report.terminal, benchhouse.warehouse):
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")


def _be_bench(asked: dict[str, Any], files: list[int]) -> None:
    from benchhouse.cli import main

    code = 1
    try:
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        # As `python -m benchhouse` has it.
        sys.path[:1] = [asked["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = ["bench", *asked["args"]]
        random.seed()  # else each call would draw the same
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
