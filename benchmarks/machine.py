"""How quiet a machine is: the time that busy processes, one a core, were kept from running."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from time import monotonic_ns

_PAUSE_NS = 100_000


@dataclass(frozen=True)
class Pauses:
    """Of more than 0.1 ms each."""

    share: float  # of the time, on the worst core
    longest_ms: float

    def __str__(self) -> str:
        return f"the machine paused busy processes for {self.share:.2%} of the time, {self.longest_ms:.1f} ms at most"


def pauses(seconds: float = 3.0) -> Pauses:
    cores = os.cpu_count() or 1
    with multiprocessing.Pool(cores) as pool:
        found = pool.map(_spin, [seconds] * cores)
    return Pauses(max(lost for lost, _ in found) / (seconds * 1e9), max(longest for _, longest in found) / 1e6)


def _spin(seconds: float) -> tuple[int, int]:
    """Nanoseconds lost in all, and in the longest pause."""
    at = monotonic_ns()
    end, lost, longest = at + round(seconds * 1e9), 0, 0
    while at < end:
        now = monotonic_ns()
        if now - at > _PAUSE_NS:
            lost += now - at
            longest = max(longest, now - at)
        at = now
    return lost, longest
