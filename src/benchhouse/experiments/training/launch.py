"""Start the ranks of a trainer, follow the processes that start them, and read how each rank ended and what it printed.

`rank.py` wraps every rank, no matter whether this process, torchrun, or srun starts it, on this node or another one.
"""

import contextlib
import json
import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from benchhouse.experiments.training.launchers import (
    Launch,
    LaunchCommand,
    Launcher,
    Processes,
    RankSettings,
    free_port,
    write_order,
)
from benchhouse.experiments.training.rank import ASK, node_of_rank

_GRACE_S = 5.0  # between sending SIGTERM to the other ranks and killing them
_SETTLE_S = 0.2  # ranks that fail together do so within this time; the others are then stopped
_ANSWER_S = 3.5  # time within which all ranks report where they hang
_LINE_ENDS = re.compile(rb"[\r\n]")
_KEPT_LINES = 1_000_000  # of a rank, to be searched for records
_LONGEST = 16 * 1024  # characters of a line that is searched
_OTHER_PORTS = 3  # how often another port is tried after the first one was taken in the meantime
_TAKEN = re.compile("EADDRINUSE|address already in use", re.IGNORECASE)
_FILE = re.compile(r"rank-(\d+)\.attempt-(\d+)\.jsonl")


@dataclass
class RankProcess:
    """One process of a rank: where it ran, each line that it printed with its time of arrival, and how it ended.

    Times are those of the monotonic clock of its node.
    """

    number: int
    log: Path
    file: Path = Path()  # the file that `rank.py` writes
    lines: list[tuple[float, str]] = field(default_factory=list)
    exit_code: int | None = None  # the negated signal number if a signal ended the process
    ended_s: float | None = None
    told_to_end: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    """node, local_rank, pid, cores, device, cpu_s, and waited_for_cpu_s, as far as `rank.py` could find them out."""
    _rest: bytes = b""
    _read_bytes: dict[Path, int] = field(default_factory=dict)

    def read(self) -> None:
        """Read what was written since the last call."""
        for line in self._new(self.file):
            self.facts |= json.loads(line)
        self.told_to_end = "told_to_end_s" in self.facts
        self.exit_code, self.ended_s = self.facts.get("exit_code"), self.facts.get("ended_s")
        arrivals = self._new(self.file.with_suffix(".times"))
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self._read_bytes.get(self.log, 0))
            for arrival in arrivals:
                moment_s, size = arrival.split()
                self.take(log.read(int(size)), float(moment_s))
            self._read_bytes[self.log] = log.tell()

    def end(self) -> None:
        """Finish the last line. A rank without an exit code was killed with `rank.py`, by us or with its node."""
        self.take(b"", self.ended_s or 0.0)
        self.exit_code = -signal.SIGKILL if self.exit_code is None else self.exit_code

    def _new(self, path: Path) -> list[bytes]:
        """Return the whole lines that were added to a file."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(self._read_bytes.get(path, 0))
            whole, _, _ = file.read().rpartition(b"\n")
            self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + bool(whole)
            return whole.split(b"\n") if whole else []
        return []

    def take(self, block: bytes, now_s: float) -> None:
        """Add bytes of its output, or none at the end. Progress bars end their lines with a carriage return."""
        *lines, rest = _LINE_ENDS.split(self._rest + block) if block else (self._rest, b"")
        self._rest = rest[:_LONGEST]
        for line in lines:
            if line and len(self.lines) < _KEPT_LINES:
                self.lines.append((now_s, line[:_LONGEST].decode(errors="replace")))

    @property
    def node(self) -> str:
        return str(self.facts.get("node", ""))

    @property
    def failed(self) -> bool:
        return bool(self.exit_code) and not self.told_to_end

    def last_lines(self, count: int = 3) -> str:
        return " / ".join(line.strip() for _, line in self.lines[-count:]) or "it printed nothing"


class NotLaunched(Exception):  # noqa: N818 - an outcome, not a bug
    """No rank was started; the message gives the reason."""


class RankWatcher(Protocol):
    """Watches ranks while they run; one for each start of the launcher."""

    every_s: float

    def hangs(self) -> bool: ...

    def is_silent(self) -> bool:
        """Return whether steps have stopped or never began; called when the timeout has passed."""

    def waited_in_vain(self) -> bool:
        """Return whether a rank that ended reports that it waited too long for another rank."""

    def is_final(self, ranks: Sequence[RankProcess]) -> bool:
        """Return whether no attempt can or need follow one that failed."""


class Unwatched:
    """Watches nothing: only the end of the ranks is noticed."""

    every_s = math.inf

    def hangs(self) -> bool:
        return False

    is_silent = waited_in_vain = hangs

    def is_final(self, ranks: Sequence[RankProcess]) -> bool:
        return False


@dataclass
class Training:
    """All attempts of the ranks."""

    attempts: list[list[RankProcess]]
    ports_taken: int = 0
    timed_out: bool = False

    @property
    def last(self) -> list[RankProcess]:
        return self.attempts[-1]


def run_here(
    argv: Sequence[str], ranks: int, environment: Mapping[str, str], logs: Path, timeout_s: float | None
) -> list[RankProcess]:
    """Run ranks on this node, once. Raise NotLaunched if they cannot be started."""
    with TemporaryDirectory(dir=logs.resolve(), prefix="ranks-") as name:
        folder, node = Path(name), node_of_rank()
        write_order(folder, logs, ranks, RankSettings())
        launch = Launch(argv, ranks, environment, logs, folder, [node], lambda node: [])
        return run_training(launch, Processes(), 0, timeout_s).last


def run_training(
    launch: Launch,
    launcher: Launcher,
    max_restarts: int,
    timeout_s: float | None,
    watch: Callable[[], RankWatcher] = Unwatched,
) -> Training:
    """Run attempts until one succeeds or none is left. An attempt whose port was taken in the meantime does not count.

    Raise NotLaunched if a rank cannot be started at all.
    """
    attempt = ports_taken = 0
    while True:
        port, watcher = free_port(), watch()
        following = _Following(launch, launcher, watcher)
        failed = following.run(launcher.commands(launch, attempt, port), timeout_s)
        attempts = RankFiles(launch).read()
        for rank in attempts[-1] if attempts else ():
            rank.end()
        if not launch.launcher_log.stat().st_size:
            launch.launcher_log.unlink()
        last = attempts[-1] if attempts else []
        if failed and ports_taken < _OTHER_PORTS and _port_was_taken(last, launch, port):
            ports_taken += 1
            continue
        missing = len(last) < launch.ranks and not any(rank.failed for rank in last)
        if failed and (missing or any("not_started" in rank.facts for rank in last)):
            raise NotLaunched(_why(last, launch))
        if launcher.restarts or not failed or attempt >= max_restarts or watcher.is_final(last):
            return Training(attempts, ports_taken, following.timed_out)
        attempt += 1


class _Following:
    """Follows the processes that start ranks until all have ended. When one fails, ranks hang, or the timeout passes,
    the others get SIGTERM and are then killed. If ranks hang, or waited for one that hangs, all are first made to print
    their stacks."""

    def __init__(self, launch: Launch, launcher: Launcher, watcher: RankWatcher) -> None:
        self._launch, self._launcher, self._watcher = launch, launcher, watcher
        self._tell_at_s = self._kill_at_s = self._look_at_s = math.inf
        self._noticed = self.timed_out = False

    def run(self, commands: Sequence[LaunchCommand], timeout_s: float | None) -> bool:
        """Start the commands and wait for their end. Return whether one failed."""
        with contextlib.ExitStack() as stack:
            said = stack.enter_context(self._launch.launcher_log.open("ab"))
            processes: list[subprocess.Popen[bytes]] = []
            stack.callback(_end, processes, signal.SIGKILL)
            for command in commands:
                process = subprocess.Popen(
                    command.argv,
                    env={**self._launch.environment, **command.variables},
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                processes.append(process)
            self._follow(processes, math.inf if timeout_s is None else time.monotonic() + timeout_s)
        return any(process.returncode for process in processes)

    def _follow(self, processes: Sequence["subprocess.Popen[bytes]"], deadline_s: float) -> None:
        with contextlib.ExitStack() as stack:
            poll, running = select.poll(), {}
            for process in processes:
                handle = os.pidfd_open(process.pid)
                stack.callback(os.close, handle)
                running[handle] = process
                poll.register(handle, select.POLLIN)
            self._look_at_s = time.monotonic() + self._watcher.every_s
            while running:
                alarms = (self._tell_at_s, self._kill_at_s) if self._noticed else (deadline_s, self._look_at_s)
                moment_s = min(alarms)
                ended = poll.poll(None if moment_s == math.inf else max(0.0, moment_s - time.monotonic()) * 1e3)
                for handle, _ in ended:
                    poll.unregister(handle)
                failed = [process for handle, _ in ended if (process := running.pop(handle)).wait()]
                now_s = time.monotonic()
                if not self._noticed:
                    self._notice(bool(failed), now_s, deadline_s)
                elif now_s >= self._tell_at_s:
                    self._tell_at_s, self._kill_at_s = math.inf, now_s + _GRACE_S
                    _end(running.values(), signal.SIGTERM)
                elif now_s >= self._kill_at_s:
                    return

    def _notice(self, failed: bool, now_s: float, deadline_s: float) -> None:
        """Check for failures, hangs, and the timeout; after any of them, the ranks are stopped."""
        hangs = False
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + self._watcher.every_s
            hangs = self._watcher.hangs()
        self.timed_out = now_s >= deadline_s
        ask = hangs or (failed and self._watcher.waited_in_vain()) or (self.timed_out and self._watcher.is_silent())
        if ask:
            (self._launch.folder / ASK).touch()
        if hangs and self._launcher.restarts:  # the launcher restarts the ranks itself, or ends
            self._look_at_s = now_s + _ANSWER_S + _GRACE_S
        elif hangs or failed or self.timed_out:
            self._noticed, self._tell_at_s = True, now_s + (_ANSWER_S if ask else _SETTLE_S)


def _end(processes: Iterable["subprocess.Popen[bytes]"], how: signal.Signals) -> None:
    """Send a signal to the processes and all that they started."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        if how == signal.SIGKILL:
            process.wait()


class RankFiles:
    """What `rank.py` has written so far, by attempt and rank; can be read repeatedly while the ranks run."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._ranks: dict[Path, RankProcess] = {}

    def read(self) -> list[list[RankProcess]]:
        attempts: dict[int, list[RankProcess]] = {}
        for path in self._launch.folder.glob("rank-*.jsonl"):
            if (match := _FILE.fullmatch(path.name)) is not None:
                number, attempt = int(match[1]), int(match[2])
                log = self._launch.logs / f"{path.stem}.log"
                rank = self._ranks.setdefault(path, RankProcess(number, log, path))
                rank.read()
                attempts.setdefault(attempt, []).append(rank)
        return [sorted(attempts[attempt], key=lambda rank: rank.number) for attempt in sorted(attempts)]


def _port_was_taken(ranks: Sequence[RankProcess], launch: Launch, port: int) -> bool:
    """Return whether another process took the port after we found it free: torch then names it in a message."""
    texts = [line for rank in ranks if rank.failed for _, line in rank.lines]
    texts += _said(launch)
    return any(str(port) in text and _TAKEN.search(text) for text in texts)


def _why(ranks: Sequence[RankProcess], launch: Launch) -> str:
    for rank in ranks:
        if "not_started" in rank.facts:
            return f"rank {rank.number} on {rank.node}: {rank.facts['not_started']}"
    said = " / ".join(_said(launch)[-3:]) or "the launcher said nothing"
    return f"{len(ranks)} of {launch.ranks} ranks were started: {said}"


def _said(launch: Launch) -> list[str]:
    """Return the lines that the launcher of the ranks printed."""
    try:
        lines = launch.launcher_log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip()]
