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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

Counts = Sequence[tuple[int, int]]
"""(requests, over) of each batch of one trial for one clause, in the order of time."""

_BLOCKS = 12  # a trial is cut into: more would be shorter than the clumps, fewer leave few degrees of freedom
CLUMP = 1.0
"""Batches that the first guess takes for one single clump."""

_LEAST_CLUMP = 50.0  # requests: but at least so many

_GUESS_SD = 1.0  # of the logarithm of that guess
_TRIAL_SD = 0.85  # of the logarithm of one trial's own dispersion
_LOW = 0.25  # by so much a trial's own logarithm is too small on average: most trials see fewer clumps than there are
_FEW = 2.0  # and one that sees about so many clumps, by half as much again
_NODES, _SPAN = 5, 2.2  # strengths that stand for all, and how many standard deviations they reach
_FAR = 1e-3  # a trial that counts less than this does not count


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
    df: int


@dataclass(frozen=True, slots=True)
class Clumping:
    """How strongly requests over the limit clump: for each floor (a row), strengths and the logarithms of their odds.

    A share `c` of all requests that comes in clumps, where `a` is allowed, has 1 + strength * sqrt(c / a) times the
    variance of independent requests: the higher the load, the longer a queue stays.
    """

    strengths: Matrix
    logs: Matrix


def fit_clumping(
    seen: Sequence[Seen], weights: Sequence[float], allowed: float, floors: Sequence[float], clump: float = CLUMP
) -> Clumping:
    """One strength for all trials, for each floor; `clump` batches are one clump until they show otherwise.

    A trial's own dispersion would not do: one that is lucky in its share is lucky in its spread too, and the lucky ones
    would count most. A floor (a part of the allowed share) does not clump.
    """
    import numpy as np

    a_batch = sum(trial.n for trial in seen) / sum(trial.batches for trial in seen)
    guess = math.log(max(_LEAST_CLUMP, clump * a_batch)) if clump else 0.0
    rows = [(trial, weight) for trial, weight in zip(seen, weights, strict=True) if trial.df and weight > _FAR]
    part = np.array(floors)[:, None]
    wide = guess + np.linspace(-8.0, 4.0, 25)[None, :] + 0.0 * part
    chances = _log_odds(rows, allowed, part, wide, guess)
    chances = np.exp(chances - chances.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    mean = (chances * wide).sum(axis=1, keepdims=True)
    sd = np.maximum(0.1, np.sqrt((chances * (wide - mean) ** 2).sum(axis=1, keepdims=True)))
    nodes = mean + _SPAN * sd * np.linspace(-1.0, 1.0, _NODES)
    return Clumping(np.exp(nodes), _log_odds(rows, allowed, part, nodes, guess) + np.log(sd))


def _log_odds(
    rows: Sequence[tuple[Seen, float]], allowed: float, floors: Matrix, nodes: Matrix, guess: float
) -> Matrix:
    """Of these logarithms of the strength, by the first guess and the trials, each with its weight."""
    import numpy as np

    strengths = np.exp(nodes)
    logs: Matrix = -0.5 * ((nodes - guess) / _GUESS_SD) ** 2
    for trial, weight in rows:
        share = trial.over / trial.n
        clumped = np.maximum(share - floors * allowed, 0.01 * share)
        growth = np.sqrt(clumped / allowed)
        excess = strengths * clumped / share * growth
        clumps = trial.n * clumped / growth / strengths  # that a trial of this length sees
        expected = np.log1p(excess) - _LOW - np.log1p(_FEW / clumps) * excess / (1.0 + excess)
        logs -= 0.5 * weight * ((math.log(max(trial.dispersion, 0.3)) - expected) / _TRIAL_SD) ** 2
        logs -= 0.5 * weight * np.log1p(excess)
    return logs


def see(x: float, trial: Counts) -> Seen:
    """Sum up a trial at log load `x`.

    Blocks that are not much longer than the clumps hide a part of the variance. What is hidden shrinks with the length
    of the block, so the same with blocks of a third of the length shows how much it is, and it is added ("lugsail"
    batch means).
    """
    n, over = sum(n for n, _ in trial), sum(over for _, over in trial)
    if len(trial) < 2 or not 0 < over < n:
        return Seen(x, n, over, len(trial), 1.0, 0)  # nothing in it tells how requests over the limit clump
    long, blocks = _between_blocks(trial, over / n, _BLOCKS)
    short, _ = _between_blocks(trial, over / n, 3 * _BLOCKS)
    return Seen(x, n, over, len(trial), 2.0 * long - short, blocks - 1)


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
