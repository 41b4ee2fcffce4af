"""Noise that remembers: how much of it there is, and what the mean of trials in a row is then worth.

Trials in a row share what lasts longer than one of them (a warm machine, a busy neighbour): they spread too little, and
their mean moves more than that of independent ones. Sides that took turns share it and are compared as pairs instead.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

FEWEST = 20  # values that it takes: of fewer, a correlation of 0.5 looks like none
LEAST = 0.2  # smaller ones count as none: chance makes them, and they move an interval by little
_SHORTEST = 3  # values of a block that has neighbours to speak of
_GRID = [step / 50 for step in range(48)]


class Worth(NamedTuple):
    """What the sample variance of values in a row is worth."""

    inflation: float  # of the variance of their mean, over what independent values would give
    df: float  # by which that is known


def memory_of(earlier: Sequence[Sequence[float]], own: Sequence[Sequence[float]] = ()) -> float | None:
    """Correlation of neighbours, from blocks of values in order of time; None where too few of them are `earlier`.

    Each block has its own level: what is measured may have changed between runs. Taking a level off its own values
    pulls neighbours apart, so that the memory is the one that would look as these values do.
    """
    if sum(len(block) for block in earlier if len(block) >= _SHORTEST) < FEWEST:
        return None
    blocks = [block for block in (*earlier, *own) if len(block) >= _SHORTEST]
    products = squares = 0.0
    for block in blocks:
        level = sum(block) / len(block)
        off = [(value - level) / (abs(level) or 1.0) for value in block]  # relative: levels may be far apart
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
    """Of two or more values in a row whose noise remembers so much (0: independent)."""
    inflation = _spread_of_sum(n, memory) * (n - 1) / _squares(n, memory)
    return Worth(inflation, max(1.0, (n - 1) * (1.0 - memory**2) / (1.0 + memory**2)))


def _spread_of_sum(n: int, memory: float) -> float:
    """Variance of the sum of n values in a row, over that of n independent ones."""
    forgets = 1.0 - memory
    return (1.0 + memory) / forgets - 2.0 * memory * (1.0 - memory**n) / (n * forgets**2)


@lru_cache(10_000)
def _squares(n: int, memory: float) -> float:
    """Expected sum of squares about their own mean, in variances."""
    return n - _spread_of_sum(n, memory)


@lru_cache(10_000)
def _products(n: int, memory: float) -> float:
    """Expected sum of the products of neighbours about their own mean, in variances."""
    ends = 2.0 * (1.0 - memory**n) / (n * (1.0 - memory))
    return (n - 1) * memory - (n + 1) * _spread_of_sum(n, memory) / n + ends
