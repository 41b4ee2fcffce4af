"""A real server that goes away and comes back: the same program, on the same folder and port."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from laboratory import children, wait_until


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@dataclass
class Mortal:
    """The process of a server, which may be ended and started again; `close` ends the last one."""

    pid: int
    _argv: list[str] = field(init=False)
    _again: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self._argv = [part.decode() for part in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[:-1]]
        self._environment = dict(
            part.decode().split("=", 1)
            for part in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
            if b"=" in part
        )
        self._cwd = Path(f"/proc/{self.pid}/cwd").readlink()
        if os.readlink(f"/proc/{self.pid}/ns/user") != os.readlink("/proc/self/ns/user"):  # it must not be root
            self._argv = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--", *self._argv]

    @contextmanager
    def away(self) -> Iterator[None]:
        """It is killed, and back afterwards; what it served is kept in its folder."""
        below = children(self.pid)
        self.close() if self._again else os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not any(_runs(pid) for pid in [self.pid, *below]), "it to end")
        with suppress(ChildProcessError):  # one that nobody has waited for would be taken for one that runs
            os.waitpid(self.pid, 0)
        yield
        self._again = subprocess.Popen(
            self._argv, env=self._environment, cwd=self._cwd, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.pid = self._again.pid

    @contextmanager
    def held(self) -> Iterator[None]:
        """It stands still, with all of its processes: connections are taken by the kernel, and nobody answers."""
        held = [self.pid, *children(self.pid)]
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(held):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        if self._again:
            self._again.kill()
            self._again.wait()
            self._again = None
