"""Autocorrelation ("memory") of noise: how strong it is, and how much the mean of consecutive trials is then worth.

Consecutive trials share what lasts longer than one of them (a warm machine, a busy neighbor): they spread too little,
and their mean varies more than that of independent ones. Sides with alternating trials share it and are compared as
pairs instead.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

FEWEST = 20  # values that an estimate needs: with fewer, a correlation of 0.5 looks like none
LEAST = 0.2  # smaller values count as none: they occur by chance and hardly change an interval
_SHORTEST = 3  # values in a block that has enough neighbors
_GRID = [step / 50 for step in range(48)]


class Worth(NamedTuple):
    """How much the sample variance of consecutive values is worth."""

    inflation: float  # variance of their mean, relative to that of independent values
    df: float  # degrees of freedom of that variance


def memory_of(earlier: Sequence[Sequence[float]], own: Sequence[Sequence[float]] = ()) -> float | None:
    """Return the correlation of neighbors in blocks of values in order of time; None if `earlier` has too few values.

    Each block has its own level: the target may have changed between runs. Subtracting the level from its own values
    lowers the correlation, so the result is the memory whose expected sample correlation matches the observed one.
    """
    if sum(len(block) for block in earlier if len(block) >= _SHORTEST) < FEWEST:
        return None
    blocks = [block for block in (*earlier, *own) if len(block) >= _SHORTEST]
    products = squares = 0.0
    for block in blocks:
        level = sum(block) / len(block)
        off = [(value - level) / (abs(level) or 1.0) for value in block]  # relative, because levels may differ widely
        products += sum(x * y for x, y in pairwise(off))
        squares += sum(x * x for x in off)
    if not squares:
        return None
    sizes = [len(block) for block in blocks]
    looks = [
        (abs(sum(_products(n, memory) for n in sizes) / sum(_squares(n, memory) for n in sizes) - products / squares))
        for memory in _GRID
    ]
    memory = _GRID[looks.index(min(looks))]
    return memory if memory >= LEAST else 0.0


def worth(n: int, memory: float) -> Worth:
    """Return the worth of two or more consecutive values with this memory (0: independent)."""
    inflation = _spread_of_sum(n, memory) * (n - 1) / _squares(n, memory)
    return Worth(inflation, max(1.0, (n - 1) * (1.0 - memory**2) / (1.0 + memory**2)))


def _spread_of_sum(n: int, memory: float) -> float:
    """Return the variance of the sum of n consecutive values, relative to that of n independent ones."""
    forgets = 1.0 - memory
    return (1.0 + memory) / forgets - 2.0 * memory * (1.0 - memory**n) / (n * forgets**2)


@lru_cache(10_000)
def _squares(n: int, memory: float) -> float:
    """Return the expected sum of squares about the sample's own mean, in variances."""
    return n - _spread_of_sum(n, memory)


@lru_cache(10_000)
def _products(n: int, memory: float) -> float:
    """Return the expected sum of products of neighbors about the sample's own mean, in variances."""
    ends = 2.0 * (1.0 - memory**n) / (n * (1.0 - memory))
    return (n - 1) * memory - (n + 1) * _spread_of_sum(n, memory) / n + ends
