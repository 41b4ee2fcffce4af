"""System calls of a command on the files below a folder, by strace: which there are, and one of them made to fail.

strace counts the calls of a kind in every process and thread for itself (`when=N`), so a fault may fall into several of
them: whatever makes its N-th call of that kind.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GROUPS = {
    "rename": ("rename", "renameat", "renameat2"),
    "fsync": ("fsync", "fdatasync"),
    "write": ("write", "writev", "pwrite64", "pwritev"),
    "openat": ("openat", "open"),
}
FAULTS = {"kill": "signal=KILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO", "EACCES": "error=EACCES"}
_CALL = re.compile(r"(?P<time>\d+\.\d+) (?P<name>\w+)\(")
_TIMEOUT_S = 120


@dataclass(frozen=True)
class Call:
    """The `at`-th call of this name in its process, as strace wrote it down."""

    time: float
    name: str
    at: int
    line: str

    @property
    def was_struck(self) -> bool:
        """Whether it was made to fail, or never came back: its process was killed in it."""
        return self.line.endswith(("(INJECTED)", "= ?"))


@dataclass(frozen=True)
class Traced:
    """A command that has ended: its exit code, all that it said, and its calls in the order of time."""

    code: int
    text: str
    calls: list[Call]


def why_not() -> str:
    """Why nothing can be traced here; empty where it can."""
    if not shutil.which("strace"):
        return "strace is not installed: scripts/install-test-deps.sh, or apt-get install strace"
    tried = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else ""


def trace(
    command: Sequence[str], folder: Path, env: Mapping[str, str], names: Sequence[str], inject: str = ""
) -> Traced:
    """Run a command in `folder`, with what `inject` says; `names` are the calls to be seen."""
    logs = folder / "trace"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    # A file each process; names of files, but not what is written. Only the calls that are asked for stop a process,
    # except where a signal is to fall: that would get lost on the way.
    strace = ["strace", "-ff", "-y", "-ttt", "-s", "0", "-o", str(logs / "log")]
    strace += [] if "signal=" in inject else ["--seccomp-bpf"]
    strace += ["-e", f"trace={','.join(f'?{name}' for name in names)}", *(["-e", f"inject={inject}"] if inject else [])]
    with (folder / "said.txt").open("w+b") as said:
        done = subprocess.run(
            [*strace, "--", *command], cwd=folder, env=dict(env), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
        said.seek(0)
        text = said.read().decode(errors="replace")
    calls = sorted((call for log in logs.iterdir() for call in _calls(log)), key=lambda call: call.time)
    return Traced(done.returncode, text, calls)


def _calls(log: Path) -> Iterator[Call]:
    counts: dict[str, int] = {}
    for line in log.read_text(errors="replace").splitlines():
        if found := _CALL.match(line):
            name = found["name"]
            counts[name] = counts.get(name, 0) + 1
            yield Call(float(found["time"]), name, counts[name], line)
