"""Embedded mode: the server is started for the trial and ended with it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections import deque
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType

from pydantic import Field

from benchhouse.experiments.serving.asking import ask
from benchhouse.schema.experiment import Context, ExperimentFailed
from benchhouse.schema.model import Model
from benchhouse.schema.quantities import Seconds

_GRACE_S = 10.0
_TAIL_LINES = 15


class Starting(Model):
    """How the server is started, and when it counts as up."""

    command: tuple[str, ...] = Field(
        min_length=1, description="Program and arguments; {port} stands for the free port."
    )
    ready: str = Field("/health", description="Path that answers 200 once the server is up.")
    timeout: Seconds = Field(300.0, gt=0, description="Longest time until then.")
    environment: dict[str, str] = Field(default_factory=dict, description="Further environment variables.")


class Started:
    """A context that gives the address of the server; it started one if there was something to start."""

    def __init__(self, starting: Starting | None, url: str, ctx: Context, verify_tls: bool = True) -> None:
        self._starting, self._url, self._ctx, self._verify_tls = starting, url, ctx, verify_tls
        self._process: subprocess.Popen[bytes] | None = None
        self._log = ctx.artifacts / "server.log"

    def __enter__(self) -> str:
        if self._starting is None:
            return self._url
        port = str(_free_port())
        url = self._url.replace("{port}", port)
        command = [word.replace("{port}", port) for word in self._starting.command]
        environment = os.environ | self._starting.environment
        if not shutil.which(command[0], path=environment.get("PATH")):
            self._ctx.fail("no_such_program", f"target.start.command: {command[0]!r} is not a program here")
        began = monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )
        try:
            self._wait(self._process, url.rstrip("/").removesuffix("/v1") + self._starting.ready)
        except BaseException:
            self._end()
            raise
        self._ctx.metadata(server_start_s=monotonic() - began)
        return url

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        died = self._process.poll()
        self._end()
        if died is not None and (kind is None or issubclass(kind, ExperimentFailed)):
            self._ctx.fail("server_died", f"the server ended with {died} during the load:\n{_tail(self._log)}")

    def _wait(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        assert self._starting is not None
        deadline = monotonic() + self._starting.timeout
        while True:
            if (code := process.poll()) is not None:
                self._ctx.fail("server_died", f"the server ended with {code} before it was ready:\n{_tail(self._log)}")
            try:
                ask(address, verify_tls=self._verify_tls, timeout_s=2.0)
                return
            except (OSError, ValueError):
                pass
            if monotonic() > deadline:
                self._ctx.fail(
                    "server_not_ready",
                    f"{address} did not answer 200 within {self._starting.timeout:g} s:\n{_tail(self._log)}",
                )
            sleep(0.05)

    def _end(self) -> None:
        """End the whole session of the server: by request, then by force."""
        assert self._process is not None
        for number, grace in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            try:
                self._process.wait(grace)
                if number == signal.SIGKILL:
                    return
            except subprocess.TimeoutExpired:
                continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, _TAIL_LINES)).rstrip()
