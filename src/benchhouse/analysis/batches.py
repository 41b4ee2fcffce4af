"""How many independent requests a trial is worth, from counts in short intervals.

Requests of one trial are not independent: a queue that is long now is long a moment later, so requests over a limit
come in clumps. The dispersion says by how much the variance of a share is larger than it would be for independent
requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Counts = Sequence[tuple[int, int]]  # (requests, over) of each batch of one trial for one clause, in the order of time

_BLOCKS = 12  # a trial is cut into: more would be shorter than the clumps, fewer leave few degrees of freedom


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
