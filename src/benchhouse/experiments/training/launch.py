"""Start the ranks of a trainer as processes of this node, read what they print, and see how each of them ends."""

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path

_GRACE_S = 5.0  # between asking the other ranks to end and killing them
_LINE_ENDS = re.compile(rb"[\r\n]")
_KEPT_LINES = 1_000_000  # of a rank, to be searched for records
_LONGEST = 16 * 1024  # characters of a line that is searched


@dataclass
class Rank:
    """One process: what it printed, each line with the moment of its arrival, and how it ended."""

    number: int
    log: Path
    lines: list[tuple[float, str]] = field(default_factory=list)
    exit_code: int | None = None  # of a process that a signal ended: its number, negative
    ended_s: float | None = None
    told_to_end: bool = False
    _rest: bytes = b""

    def take(self, block: bytes, now_s: float) -> None:
        """Some bytes of its output; none at the end. A progress bar ends its lines by a carriage return."""
        *lines, rest = _LINE_ENDS.split(self._rest + block) if block else (self._rest, b"")
        self._rest = rest[:_LONGEST]
        for line in lines:
            if line and len(self.lines) < _KEPT_LINES:
                self.lines.append((now_s, line[:_LONGEST].decode(errors="replace")))

    @property
    def failed(self) -> bool:
        return bool(self.exit_code) and not self.told_to_end

    def last_lines(self, count: int = 3) -> str:
        return " / ".join(line.strip() for _, line in self.lines[-count:]) or "it printed nothing"


@dataclass(frozen=True)
class Launch:
    """What to start."""

    argv: Sequence[str]
    ranks: int
    environment: Mapping[str, str]
    cwd: str
    logs: Path


def run_attempt(launch: Launch, attempt: int, timeout_s: float | None) -> list[Rank]:
    """Start all ranks and wait for them. When one fails, or the time is over, the others are told to end, then killed.

    Raises OSError where the program can't be started.
    """
    port = _free_port()
    ranks = [Rank(number, launch.logs / f"rank-{number}.attempt-{attempt}.log") for number in range(launch.ranks)]
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        processes: dict[int, subprocess.Popen[bytes]] = {}
        stack.callback(_end, processes, signal.SIGKILL)
        for rank in ranks:
            log = stack.enter_context(rank.log.open("wb", buffering=0))
            process = subprocess.Popen(
                launch.argv,
                env={**launch.environment, **_variables(rank.number, launch.ranks, attempt, port)},
                cwd=launch.cwd or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            processes[rank.number] = process
            assert process.stdout is not None
            selector.register(stack.enter_context(process.stdout), selectors.EVENT_READ, (rank, log))
            handle = os.pidfd_open(process.pid)
            stack.callback(os.close, handle)
            selector.register(handle, selectors.EVENT_READ, (rank, None))
        _follow(selector, processes, None if timeout_s is None else time.monotonic() + timeout_s)
    return ranks


def _follow(
    selector: selectors.BaseSelector, processes: Mapping[int, "subprocess.Popen[bytes]"], deadline_s: float | None
) -> None:
    """Until every process has ended; what it printed before is read to the end."""
    running, kill_at_s = set(processes), None
    while running:
        waits_until = [moment for moment in (deadline_s, kill_at_s) if moment is not None]
        wait_s = max(0.0, min(waits_until) - time.monotonic()) if waits_until else None
        for key, _ in selector.select(wait_s):
            rank, log = key.data
            now_s = time.monotonic()
            if log is not None:
                _read(selector, key, rank, log)
            else:
                rank.exit_code, rank.ended_s = processes[rank.number].wait(), now_s
                running.discard(rank.number)
                selector.unregister(key.fileobj)
                _drain(selector, rank)
                if rank.failed and kill_at_s is None:
                    kill_at_s = now_s + _GRACE_S
                    _tell_to_end(selector, running, processes)
        now_s = time.monotonic()
        if deadline_s is not None and now_s >= deadline_s and kill_at_s is None:
            kill_at_s = now_s + _GRACE_S
            _tell_to_end(selector, running, processes)
        if kill_at_s is not None and now_s >= kill_at_s:
            _end({number: processes[number] for number in running}, signal.SIGKILL)
            deadline_s = kill_at_s = None


def _read(selector: selectors.BaseSelector, key: selectors.SelectorKey, rank: Rank, log: RawIOBase) -> bool:
    block = os.read(key.fd, 1 << 16)
    log.write(block)
    rank.take(block, time.monotonic())
    if not block:
        selector.unregister(key.fileobj)
    return bool(block)


def _drain(selector: selectors.BaseSelector, rank: Rank) -> None:
    """What is left of a process that is over; a child of it may hold the other end, so nothing is waited for."""
    for key in list(selector.get_map().values()):
        own, log = key.data
        if own is rank and log is not None:
            os.set_blocking(key.fd, False)
            with contextlib.suppress(BlockingIOError):
                while _read(selector, key, rank, log):
                    pass


def _tell_to_end(
    selector: selectors.BaseSelector, running: set[int], processes: Mapping[int, "subprocess.Popen[bytes]"]
) -> None:
    for key in selector.get_map().values():
        if key.data[0].number in running:
            key.data[0].told_to_end = True
    _end({number: processes[number] for number in running}, signal.SIGTERM)


def _end(processes: Mapping[int, "subprocess.Popen[bytes]"], how: signal.Signals) -> None:
    """With all that they started."""
    for process in processes.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        if how == signal.SIGKILL:
            process.wait()


def _variables(rank: int, world: int, attempt: int, port: int) -> dict[str, str]:
    """As torchrun names them, for one node."""
    numbers = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0,
        "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": attempt,
    }  # fmt: skip
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in numbers.items()}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
