"""Run `bench` in a process of its own without the start of an interpreter: fork it from a process that imported it.

This serves verbs that only read, and runs that a test waits for; their workers are real new processes as ever. A
command that a test signals, or that leaves a process behind, is started as a new program, because tests look for it.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

READING_VERBS = frozenset(
    ["collect", "compare", "history", "list", "logs", "plan", "query", "report", "show", "status"]
)
READING_VERBS |= {"claim", "evidence", "export", "gate", "trace", "validate", "verify", "warehouse", "why"}
READING_VERBS |= {"audit", "baseline", "images", "import", "time", "token"}  # these write, and leave no process
READING_VERBS |= {"alarms", "approvals", "contracts", "dashboards", "github", "infra", "leaderboard", "slo", "stop"}
SERVICE_VERBS = frozenset(["monitors", "servers"])  # only their `start` leaves a process
RUN_VERBS = frozenset(["run", "submit"])


class ForkedBench:
    """A `bench` that was forked and runs in the background, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, stdout: IO[str], stderr: IO[str], status: IO[bytes], timeout_s: float) -> None:
        self.stdout, self.stderr, self._status = stdout, stderr, status
        self.returncode: int | None = None
        self.pid = self._read(timeout_s)

    def _read(self, timeout_s: float | None) -> int:
        """The next number that the process that waits for `bench` has sent: its process id, then its exit code."""
        if not select.select([self._status], [], [], timeout_s)[0]:
            raise subprocess.TimeoutExpired("bench", timeout_s or 0)
        number = self._status.read(8)
        assert len(number) == 8, "the process that waits for bench has ended"
        return int.from_bytes(number, signed=True)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._read(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        with ThreadPoolExecutor(2) as readers:
            texts = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self.wait(timeout)
            return texts[0].result(), texts[1].result()


class WarmBench:
    """The process that forks for each call. Each test process has one, which ends with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            from costs import watch_process  # here, because the process that forks does not need pytest

            one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # so that it can fork
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=one_thread, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        watch_process(self._process.pid)
        self._one_at_a_time = threading.Lock()
        atexit.register(self._socket.close)

    def call(
        self, args: tuple[str, ...], folder: Path, environment: dict[str, str], timeout_s: float, kill_at: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run `bench` to its end. With `kill_at`, a function `module.name`, it gets SIGKILL when it calls that."""
        content = {"args": args, "folder": str(folder), "environment": environment, "kill_at": kill_at}
        request = json.dumps(content).encode()
        with self._one_at_a_time, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._socket, [len(request).to_bytes(8)], [out.fileno(), err.fileno()])
            self._socket.sendall(request)
            pid = self._read_number(timeout_s)
            try:
                code = self._read_number(timeout_s)
            except TimeoutError:
                os.kill(pid, 9)
                self._read_number(timeout_s)
                raise subprocess.TimeoutExpired(args, timeout_s) from None
            texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
        return subprocess.CompletedProcess(args, code, *texts)

    def start(self, args: tuple[str, ...], folder: Path, environment: dict[str, str]) -> ForkedBench:
        """Start `bench` and return while it runs."""
        request = {"args": args, "folder": str(folder), "environment": environment}
        message = json.dumps(request | {"background": True}).encode()
        pipes = [os.pipe() for _ in range(3)]
        writing = [end for _, end in pipes]
        with self._one_at_a_time:
            socket.send_fds(self._socket, [len(message).to_bytes(8)], writing)
            self._socket.sendall(message)
        for end in writing:
            os.close(end)
        out, err, status = (reading for reading, _ in pipes)
        return ForkedBench(open(out, encoding="utf-8"), open(err, encoding="utf-8"), open(status, "rb", 0), 120)

    def _read_number(self, timeout_s: float) -> int:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            raise TimeoutError
        answer = self._socket.recv(8, socket.MSG_WAITALL)
        assert answer, "the process that forks for each call has ended"
        return int.from_bytes(answer, signed=True)


def _serve(control: socket.socket) -> None:
    _import_all()
    waiting: list[int] = []
    while True:
        head, files, _, _ = socket.recv_fds(control, 8, 3)
        if not head:
            return
        request = json.loads(control.recv(int.from_bytes(head), socket.MSG_WAITALL))
        waiting = [pid for pid in waiting if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        if request.get("background"):
            if request["args"][:1] == ["serve"]:
                _import_server()
            waiting.append(pid := os.fork())
            if pid == 0:
                control.close()
                _run_in_background(request, files)
            for file in files:
                os.close(file)
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _run_bench(request, files)
        for file in files:
            os.close(file)
        control.sendall(pid.to_bytes(8, signed=True))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        control.sendall(code.to_bytes(8, signed=True))


def _run_in_background(request: dict[str, Any], files: list[int]) -> None:
    """Be the parent of `bench`: only a parent learns the exit code, and the helper has others to serve."""
    *streams, status = files
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run_bench(request, streams)
    for file in streams:
        os.close(file)
    with contextlib.suppress(BrokenPipeError):  # the test has ended
        os.write(status, pid.to_bytes(8, signed=True))
        os.write(status, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]).to_bytes(8, signed=True))
    os._exit(0)


def _import_all() -> None:
    """Import what reading verbs and runs use, and build what would be built at first use. Nothing starts a thread."""
    import pkgutil

    import duckdb as duckdb
    import numpy as numpy
    import pyarrow.parquet as parquet  # noqa: F401
    import rich.console
    import rich.table  # noqa: F401

    import benchhouse.api
    import benchhouse.catalog.benchmark_lookup
    import benchhouse.catalog.loading
    import benchhouse.cli.verbs
    import benchhouse.executors.local
    import benchhouse.plan.spaces
    import benchhouse.processes.cgroups
    import benchhouse.report.terminal
    import benchhouse.runtimes.process
    import benchhouse.warehouse

    for package in (benchhouse.cli.verbs, benchhouse.api, benchhouse.report.terminal, benchhouse.warehouse):
        for found in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{found.name}")
    _build_models()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page


def _import_server() -> None:
    """Import what `bench serve` uses, in the process that forks: no server has to do it again."""
    if "benchhouse.serve.server" not in sys.modules:
        importlib.import_module("benchhouse.serve.server")
        _build_models()
        gc.collect()
        gc.freeze()


def _build_models() -> None:
    """Build the validators of all models whose build was deferred to their first use."""
    from pydantic import BaseModel

    waiting = [BaseModel]
    while waiting:
        for model in waiting.pop().__subclasses__():
            waiting.append(model)
            if model.__module__.startswith("benchhouse.") and not model.__pydantic_complete__:
                model.model_rebuild(raise_errors=False)


def _run_bench(request: dict[str, Any], files: list[int]) -> None:
    from benchhouse.cli import main

    code = 1
    try:
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        # As `python -m benchhouse` has it.
        sys.path[:1] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = ["bench", *request["args"]]
        random.seed()  # else each call would draw the same numbers
        if kill_at := request.get("kill_at"):
            module, _, name = kill_at.rpartition(".")
            setattr(importlib.import_module(module), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
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
    os._exit(0)  # skip the leak checks of libraries
