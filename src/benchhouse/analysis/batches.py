"""How many independent requests a trial is worth, from counts in short intervals.

Requests of one trial are not independent: a queue that is long now is long a moment later, so requests over a limit
come in clumps. The dispersion says by how much the variance of a share is larger than it would be for independent
requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Counts = Sequence[tuple[int, int]]
"""(requests, over) of each batch of one trial for one clause, in the order of time."""

_BLOCKS = 12  # a trial is cut into: more would be shorter than the clumps, fewer leave few degrees of freedom
CLUMP = 3.0
"""Batches that the first guess takes for one single clump."""

_PRIOR_DF = 3.0  # how much that guess is worth
_CAUTION = 0.75  # standard errors
_STEEPEST = 15.0  # clumps grow with the load, by about this power of it at most


@dataclass(frozen=True, slots=True)
class Batch:
    """The requests of one short interval (about a second) of a trial: how many, and how many over each clause."""

    n: int
    over: tuple[int, ...]
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One trial for one clause: log load, counts, and its own dispersion with the degrees of freedom behind it."""

    x: float
    n: int
    over: int
    batches: int
    dispersion: float
    within: float  # the dispersion inside single batches, as if they were independent of each other
    df: int


@dataclass(frozen=True, slots=True)
class Dispersion:
    """By how much the variance of a share is larger than binomial, at any log load; as well as `df` squares tell it."""

    centre: float
    level: float
    slope: float
    df: float
    memory: float  # batches after which a trial has forgotten what was: a clump lasts about so long

    def at(self, x: float) -> float:
        """A little above the estimate: clumps are rare, so most samples show fewer than there are on average."""
        log = self.level + self.slope * (x - self.centre) + _CAUTION * math.sqrt(2.0 / self.df)
        return max(1.0, math.exp(min(log, 50.0)))


def fit_dispersion(seen: Sequence[Seen], weights: Sequence[float], centre: float, clump: float = CLUMP) -> Dispersion:
    """A smooth curve through the dispersions of the trials; `clump` batches are one clump until they show otherwise.

    One trial's own dispersion would not do: a trial that is lucky in its share is lucky in its spread too, and the
    lucky ones would count most.
    """
    longest = max(1.0, max(weight * trial.n for trial, weight in zip(seen, weights, strict=True)))
    # Half the degrees of freedom are lost by taking a difference of two noisy numbers. Short trials hide clumps.
    rows = [
        (trial.x - centre, max(trial.dispersion, 0.1), weight * trial.df / 2.0 * min(1.0, trial.n / longest))
        for trial, weight in zip(seen, weights, strict=True)
        if trial.df
    ]
    batch = math.log(max(1.0, clump * sum(trial.n for trial in seen) / sum(trial.batches for trial in seen)))
    level, slope = batch, 0.0
    # A gamma regression with log link: weighted least squares on working values until they settle.
    for _ in range(25):
        s0, s1, s2, t0, t1 = _PRIOR_DF, 0.0, 1.0 / _STEEPEST**2, _PRIOR_DF * batch, 0.0
        for u, factor, weight in rows:
            fitted = level + slope * u
            z = fitted + factor / math.exp(fitted) - 1.0
            s0, s1, s2, t0, t1 = s0 + weight, s1 + weight * u, s2 + weight * u * u, t0 + weight * z, t1 + weight * u * z
        best_slope = (s0 * t1 - s1 * t0) / (s0 * s2 - s1 * s1)
        best_level = (t0 - best_slope * s1) / s0
        # In small steps: the working values of a fit that is far off are far off themselves.
        slope += max(-5.0, min(5.0, best_slope - slope))
        level += max(-0.7, min(0.7, best_level - level))
    lasting = [(weight * trial.n, trial) for trial, weight in zip(seen, weights, strict=True) if trial.df]
    within = sum(weight * trial.within for weight, trial in lasting)
    memory = sum(weight * trial.dispersion for weight, trial in lasting) / within if within else 1.0
    return Dispersion(centre, level, slope, _PRIOR_DF + sum(weight for _, _, weight in rows), max(1.0, memory))


def see(x: float, trial: Counts) -> Seen:
    """Sum up a trial at log load `x`.

    Blocks that are not much longer than the clumps hide a part of the variance. What is hidden shrinks with the length
    of the block, so the same with blocks of a third of the length shows how much it is, and it is added ("lugsail"
    batch means).
    """
    n, over = sum(n for n, _ in trial), sum(over for _, over in trial)
    if len(trial) < 2 or not 0 < over < n:
        return Seen(x, n, over, len(trial), 1.0, 1.0, 0)  # nothing in it tells how requests over the limit clump
    long, blocks = _between_blocks(trial, over / n, _BLOCKS)
    short, _ = _between_blocks(trial, over / n, 3 * _BLOCKS)
    within, _ = _between_blocks(trial, over / n, len(trial))
    return Seen(x, n, over, len(trial), 2.0 * long - short, within, blocks - 1)


def _between_blocks(trial: Counts, share: float, most: int) -> tuple[float, int]:
    """Squares between at most `most` blocks of neighbouring batches, over their binomial expectation."""
    count = min(most, len(trial))
    edges = [round(i * len(trial) / count) for i in range(count + 1)]
    squares, requests = 0.0, 0
    for start, end in pairwise(edges):
        n, over = sum(n for n, _ in trial[start:end]), sum(over for _, over in trial[start:end])
        squares += (over - n * share) ** 2
        requests += n
    return squares / (requests * share * (1.0 - share)) * count / (count - 1), count
