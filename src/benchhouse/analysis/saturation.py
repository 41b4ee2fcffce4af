"""The saturation curve: load offered, throughput delivered, the share over the limits, and where the curve bends.

Requests of one trial are not independent: a queue that is long now is still long a moment later, so requests over a
limit come in clumps. The dispersion, estimated from counts in short intervals, is the variance of a share relative to
that of independent requests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchhouse.analysis.student import critical_t

Counts = Sequence[tuple[int, int]]  # (requests, over) of each batch of one trial for one clause, in order of time

_BLOCKS = 12  # blocks of a trial: more would be shorter than the clumps, fewer leave few degrees of freedom


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """The requests of one short interval (about a second) of a trial: all, and those over the limit of each clause."""

    n: int
    over: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """One trial for one clause: log load, counts, and its dispersion with its degrees of freedom."""

    x: float
    n: int
    over: int
    batches: int
    dispersion: float
    df: int


@dataclass(frozen=True, slots=True)
class ExceededShare:
    """Share of the requests that were over a limit, with its interval (Wilson's, for effective requests)."""

    observed: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """One probe: its load and its result. `over` has one share for each clause of the SLO."""

    load: float
    requests: int
    delivered: float  # requests per second
    over: tuple[ExceededShare, ...]
    latency_s: float | None = None


def share_interval(seen: TrialCounts, confidence: float) -> ExceededShare:
    """Return the share with its interval for the effective number of requests, which clumps make smaller than the
    number sent.
    """
    n, observed = seen.n / max(1.0, seen.dispersion), seen.over / seen.n
    # The dispersion is a difference of two noisy numbers, and has about half of their degrees of freedom.
    z = critical_t(confidence, seen.df / 2.0 if seen.df else 1e6)
    middle = (observed + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z / (1.0 + z * z / n) * math.sqrt(observed * (1.0 - observed) / n + z * z / (4.0 * n * n))
    return ExceededShare(observed, max(0.0, middle - half), min(1.0, middle + half))


def peak_power_load(curve: Sequence[ProbePoint]) -> float | None:
    """Return the load with the most throughput for its latency (Kleinrock's power): beyond it, waiting grows faster
    than work.

    Between probes it is the vertex of a parabola through the best probe and its neighbors. None if fewer than three
    probes have a latency, or if the best is the first or the last: then the peak may lie outside. It is unrelated to an
    SLO: the knee, the highest load that meets one, may lie on either side of it.
    """
    probes = sorted((p for p in curve if p.latency_s and p.delivered > 0), key=lambda p: p.load)
    powers = [math.log(p.delivered / p.latency_s) for p in probes if p.latency_s]
    best = max(range(len(powers)), key=powers.__getitem__, default=0)
    if not 0 < best < len(powers) - 1:
        return None
    left, middle, right = (math.log(p.load) for p in probes[best - 1 : best + 2])
    rise = (powers[best] - powers[best - 1]) / (middle - left) if middle > left else 0.0
    fall = (powers[best + 1] - powers[best]) / (right - middle) if right > middle else 0.0
    bend = (fall - rise) / (right - left)
    return math.exp((left + middle) / 2.0 - rise / (2.0 * bend)) if bend < 0 else probes[best].load


def capacity(curve: Sequence[ProbePoint]) -> float:
    """Return the highest throughput that any probe delivered, in requests per second; 0 for an empty curve."""
    return max((p.delivered for p in curve), default=0.0)


def see(x: float, trial: Counts) -> TrialCounts:
    """Summarize a trial at log load `x`.

    Blocks that are not much longer than the clumps hide a part of the variance. The hidden part shrinks with the length
    of the block, so blocks of a third of the length show how large it is, and it is added ("lugsail" batch means).
    """
    n, over = sum(n for n, _ in trial), sum(over for _, over in trial)
    if len(trial) < 2 or not 0 < over < n:
        return TrialCounts(x, n, over, len(trial), 1.0, 0)  # it has no information on how requests over the limit clump
    long, blocks = _between_blocks(trial, over / n, _BLOCKS)
    short, _ = _between_blocks(trial, over / n, 3 * _BLOCKS)
    return TrialCounts(x, n, over, len(trial), 2.0 * long - short, blocks - 1)


def _between_blocks(trial: Counts, share: float, most: int) -> tuple[float, int]:
    """Return the squares between at most `most` blocks of neighboring batches over their binomial expectation, and the
    number of blocks.
    """
    count = min(most, len(trial))
    edges = [round(i * len(trial) / count) for i in range(count + 1)]
    squares, requests = 0.0, 0
    for start, end in pairwise(edges):
        n, over = sum(n for n, _ in trial[start:end]), sum(over for _, over in trial[start:end])
        squares += (over - n * share) ** 2
        requests += n
    return squares / (requests * share * (1.0 - share)) * count / (count - 1), count
