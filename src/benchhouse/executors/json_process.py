"""A child process that exchanges JSON messages, one per line."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any


class JsonProcess:
    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, new_session: bool = False
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - an unread pipe would block it once it is full
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
            start_new_session=new_session,
        )
        assert self.process.stdin and self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._buffer = b""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when `read` returns without waiting."""
        return self._stdout.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # `read` finds out that the process is gone
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages that have come, and whether the process is gone."""
        chunk = os.read(self.fileno(), 1 << 16)
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line], not chunk

    def last_line(self) -> str:
        """Return the last non-empty line that the process wrote to stderr."""
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def end(self, timeout_s: float) -> str:
        """Close its input, wait, kill it if it still runs after `timeout_s`, and return its last line."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        last_line = self.last_line()
        self._stdout.close()
        self._stderr.close()
        return last_line
