"""Watch the records of running ranks: a rank that recorded steps and then records none for too long hangs."""

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchhouse.experiments.training.faults import FaultEvidence, diagnose
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.launchers import Launch
from benchhouse.experiments.training.symptoms import symptom_of

FLOOR_S, TIMES = 300.0, 30.0
"""By default, a rank may be silent for the longer of FLOOR_S and TIMES steps."""
_SOONEST_S, _LATEST_S = 0.1, 10.0  # between two checks
_SILENT_S = 1.0
_TAIL_BYTES = 1 << 16
_STEP = b'"step"'
_FILE = re.compile(r"rank-(\d+)\.attempt-(\d+)\.jsonl")


@dataclass
class _Signs:
    """Signs of life of one rank in its last attempt."""

    attempt: int
    runs: bool = True
    count: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


class ProgressWatch:
    """A sign of life is the record of a step, emitted or printed as JSON. With `lines`, for a program whose records are
    found by patterns, it is every line that the rank prints."""

    def __init__(self, emitted: Path, launch: Launch, hang_after_s: float | None, *, lines: bool) -> None:
        self._emitted, self._folder, self._logs = emitted, launch.folder, launch.logs
        self._asked_s, self._lines = hang_after_s, lines
        self._read_bytes = {path: path.stat().st_size for path in emitted.glob("*.jsonl")}  # of earlier attempts
        self._before = {path: path.stat().st_mtime_ns for path in launch.folder.glob("rank-*.jsonl")}
        self._signs: dict[int, _Signs] = {}
        self._attempts: dict[Path, int | None] = {}
        self.every_s = min(_LATEST_S, max(_SOONEST_S, (hang_after_s or FLOOR_S) / 10))

    def hangs(self) -> bool:
        """Return whether a rank that still runs hangs. A rank that never gave a sign does not count: in many programs
        only the first rank records its steps."""
        self._look()
        now_s, limit_s = time.monotonic(), self._limit_s()
        return any(signs.runs and signs.count and now_s - signs.last_s > limit_s for signs in self._signs.values())

    def is_silent(self) -> bool:
        self._look()
        last_s = max((signs.last_s for signs in self._signs.values() if signs.count), default=-math.inf)
        return time.monotonic() - last_s > max(_SILENT_S, TIMES * self._step_s())

    def waited_in_vain(self) -> bool:
        self._look()
        ended = [rank for rank, signs in self._signs.items() if not signs.runs]
        return any(symptom_of(self._tail(rank)) == "late" for rank in ended)

    def is_final(self, ranks: Sequence[RankProcess]) -> bool:
        """Return whether the attempt is final: ranks did all steps and then hung at exit, or their node was lost."""
        self._look()
        counts = {rank: signs.count for rank, signs in self._signs.items() if signs.count}
        return diagnose(FaultEvidence(ranks, counts)).kind in ("hung_at_exit", "node")

    def _limit_s(self) -> float:
        """Return how long a rank may be silent."""
        if self._asked_s is not None:
            return self._asked_s
        return math.inf if self._lines else max(FLOOR_S, TIMES * self._step_s())

    def _step_s(self) -> float:
        """Return the mean time between records of the slowest rank; 0 if no rank has two records."""
        known = [signs for signs in self._signs.values() if signs.count > 1]
        return max(((signs.last_s - signs.first_s) / (signs.count - 1) for signs in known), default=0.0)

    def _look(self) -> None:
        for path in self._folder.glob("rank-*.jsonl"):
            if self._before.get(path) != path.stat().st_mtime_ns and (match := _FILE.fullmatch(path.name)):
                rank, attempt = int(match[1]), int(match[2])
                if rank not in self._signs or attempt > self._signs[rank].attempt:
                    self._signs[rank] = _Signs(attempt)
                if self._signs[rank].attempt == attempt:
                    self._signs[rank].runs = b'"exit_code"' not in path.read_bytes()
                    lines = self._new(self._logs / f"{path.stem}.log")
                    self._take(rank, [line for line in lines if self._lines or line.lstrip().startswith(b"{")])
        for path in self._emitted.glob("*.jsonl"):
            name, lines = path.name.partition("-")[0], self._new(path)
            number = int(name) if name.isdigit() else 0
            if lines and path not in self._attempts:
                self._attempts[path] = _attempt_of(lines[0])
            # The last records of an attempt may be read after the start of the next one, before its first step.
            if lines and number in self._signs and self._attempts[path] in (None, self._signs[number].attempt):
                self._take(number, lines)

    def _take(self, rank: int, lines: Sequence[bytes]) -> None:
        count = len(lines) if self._lines else sum(_STEP in line for line in lines)
        if count and rank in self._signs:
            signs, now_s = self._signs[rank], time.monotonic()
            signs.first_s = signs.first_s or now_s
            signs.count, signs.last_s = signs.count + count, now_s

    def _new(self, path: Path) -> list[bytes]:
        """Return the whole lines that were added to a file."""
        at = self._read_bytes.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(at)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:  # the log of another node appears here later than the record of its rank
            return []
        self._read_bytes[path] = at + len(whole) + len(end)
        return whole.split(b"\n") if end else []

    def _tail(self, rank: int) -> list[str]:
        with (self._logs / f"rank-{rank}.attempt-{self._signs[rank].attempt}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()


def _attempt_of(head: bytes) -> int | None:
    """Return the attempt in the first line of a file of records; None if it has none."""
    try:
        attempt = json.loads(head).get("attempt")
    except (ValueError, AttributeError):
        return None
    return attempt if isinstance(attempt, int) else None
