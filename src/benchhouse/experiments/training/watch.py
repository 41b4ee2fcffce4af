"""Watch the records of running ranks: one that had told steps and tells none for too long hangs."""

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
"""Where no time is asked for, a rank may be silent for the longer of this and so many steps."""
_SOONEST_S, _LATEST_S = 0.1, 10.0  # between two looks
_SILENT_S = 1.0
_TAIL_BYTES = 1 << 16
_STEP = b'"step"'
_FILE = re.compile(r"rank-(\d+)\.attempt-(\d+)\.jsonl")


@dataclass
class _Signs:
    """Of life, of one rank in its last attempt."""

    attempt: int
    runs: bool = True
    count: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


class ProgressWatch:
    """A sign of life is the record of a step, emitted or printed as JSON; with `lines`, for a program whose records
    patterns find, every line that it prints."""

    def __init__(self, emitted: Path, launch: Launch, hang_after_s: float | None, *, lines: bool) -> None:
        self._emitted, self._folder, self._logs = emitted, launch.folder, launch.logs
        self._asked_s, self._lines = hang_after_s, lines
        self._read_bytes = {path: path.stat().st_size for path in emitted.glob("*.jsonl")}  # of attempts before
        self._before = {path: path.stat().st_mtime_ns for path in launch.folder.glob("rank-*.jsonl")}
        self._signs: dict[int, _Signs] = {}
        self._attempts: dict[Path, int | None] = {}
        self.every_s = min(_LATEST_S, max(_SOONEST_S, (hang_after_s or FLOOR_S) / 10))

    def hangs(self) -> bool:
        """Whether a rank does that still runs. Nothing is said of one that never gave a sign: in many programs only the
        first rank tells its steps."""
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
        """Ranks that did all that those did which ended well, and then hung, have trained; a lost node has none."""
        self._look()
        counts = {rank: signs.count for rank, signs in self._signs.items() if signs.count}
        return diagnose(FaultEvidence(ranks, counts)).kind in ("hung_at_exit", "node")

    def _limit_s(self) -> float:
        """How long a rank may be silent."""
        if self._asked_s is not None:
            return self._asked_s
        return math.inf if self._lines else max(FLOOR_S, TIMES * self._step_s())

    def _step_s(self) -> float:
        """Mean time between records, of the rank that has the longest; 0 where there is none."""
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
            # The last records of an attempt may be read when the next one has begun, and is not at a step yet.
            if lines and number in self._signs and self._attempts[path] in (None, self._signs[number].attempt):
                self._take(number, lines)

    def _take(self, rank: int, lines: Sequence[bytes]) -> None:
        count = len(lines) if self._lines else sum(_STEP in line for line in lines)
        if count and rank in self._signs:
            signs, now_s = self._signs[rank], time.monotonic()
            signs.first_s = signs.first_s or now_s
            signs.count, signs.last_s = signs.count + count, now_s

    def _new(self, path: Path) -> list[bytes]:
        """Whole lines that were added to a file."""
        at = self._read_bytes.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(at)
                whole, end, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:  # a log of another node, which is seen here later than the record of its rank
            return []
        self._read_bytes[path] = at + len(whole) + len(end)
        return whole.split(b"\n") if end else []

    def _tail(self, rank: int) -> list[str]:
        with (self._logs / f"rank-{rank}.attempt-{self._signs[rank].attempt}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()


def _attempt_of(head: bytes) -> int | None:
    """By the first line of a file of records; None where it does not tell."""
    try:
        attempt = json.loads(head).get("attempt")
    except (ValueError, AttributeError):
        return None
    return attempt if isinstance(attempt, int) else None
