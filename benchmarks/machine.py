"""How quiet a machine is: the share of time in which busy processes, one a core, were slowed down or not run at all."""

from __future__ import annotations

import multiprocessing
import os
import statistics
from dataclasses import dataclass
from time import monotonic_ns

_SLOW = 4.0  # times the usual duration of a piece of work
_WORK = range(300)  # some microseconds
QUIET = 0.002
"""Below this share of the time, a 99th percentile is not the machine's."""


@dataclass(frozen=True)
class Slowness:
    """On the worst core: the share of time spent on pieces of work that took four times as long as usual, and more."""

    share: float
    longest_ms: float

    @property
    def quiet(self) -> bool:
        return self.share < QUIET

    def __str__(self) -> str:
        return (
            f"the machine ran at less than a quarter of its speed for {self.share:.2%} of the time, "
            f"{self.longest_ms:.1f} ms at most{'' if self.quiet else ': it is not quiet'}"
        )


def slowness(seconds: float = 3.0) -> Slowness:
    cores = os.cpu_count() or 1
    with multiprocessing.Pool(cores) as pool:
        found = pool.map(_work, [seconds] * cores)
    return Slowness(max(share for share, _ in found), max(longest for _, longest in found) / 1e6)


def _work(seconds: float) -> tuple[float, int]:
    """Share of the time that slow pieces took, and nanoseconds of the longest."""
    at = monotonic_ns()
    end, took = at + round(seconds * 1e9), list[int]()
    while at < end:
        sum(_WORK)
        now = monotonic_ns()
        took.append(now - at)
        at = now
    limit = _SLOW * statistics.median(took)
    slow = [one for one in took if one > limit]
    return sum(slow) / sum(took), max(slow, default=0)
