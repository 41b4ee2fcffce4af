"""A/A pairs: how often equal targets look different on this machine, and the smallest change that would be detected."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.compare import CONFIDENCE, Pair, compare_many
from benchhouse.analysis.ranking import SEED
from benchhouse.analysis.student import incomplete_beta
from benchhouse.analysis.summary import mean, variance

_POWER = 0.8
_LARGEST = 1.0
Pairs = Sequence[tuple[Sequence[float], Sequence[float]]]
_ALIKE = ("no evidence of a difference", "too few repetitions")


@dataclass(frozen=True, slots=True)
class Tested:
    """The results of the A/A pairs of one metric."""

    pairs: int
    false_positives: int
    rate: float
    rate_interval: tuple[float, float]
    # standard deviation of a trial within a pair, relative to the mean; None if the mean is zero
    cv: float | None
    smallest_effect: float | None
    """The smallest relative change that 4 of 5 of these pairs show when it is injected; None: not even a factor
    of 2.
    """


def split(values: Sequence[float], repetitions: int) -> list[tuple[list[float], list[float]]]:
    """Return pairs from one series of trials in order: neighbors alternate between the sides, so that drift affects
    both alike.
    """
    size = 2 * repetitions
    blocks = [values[at : at + size] for at in range(0, len(values) - size + 1, size)]
    return [(list(block[::2]), list(block[1::2])) for block in blocks]


def judge_pairs(
    pairs: Pairs,
    direction: Literal["higher", "lower"] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> Tested:
    """Compare each pair like `bench compare`, then again with an injected change in B."""
    n, wrong = len(pairs), _count_different(pairs, 0.0, confidence)
    smallest = _smallest(pairs, direction, confidence)
    return Tested(n, wrong, wrong / n, exact_interval(wrong, n), _spread(pairs), smallest)


def exact_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return both ends; the interval covers the true rate with a probability of at least `confidence`, for every n."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"a rate needs 0 <= hits <= n and n >= 1, found {hits} of {n}")
    tail = (1.0 - confidence) / 2.0
    # P(X >= hits) for X binomial(n, p) is the incomplete beta function of p; both ends solve for p.
    low = 0.0 if hits == 0 else _solve(lambda p: incomplete_beta(hits, n - hits + 1, p) - tail)
    high = 1.0 if hits == n else _solve(lambda p: incomplete_beta(hits + 1, n - hits, p) - (1.0 - tail))
    return low, high


def _solve(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return (low + high) / 2.0


def _count_different(pairs: Pairs, effect: float, confidence: float) -> int:
    """Return how many pairs look different if B is larger by `effect`."""
    planted = [Pair(a, [value * (1.0 + effect) for value in b]) for a, b in pairs]
    results = compare_many(planted, seed=SEED, confidence=confidence)
    return sum(result.verdict not in _ALIKE for result in results)


def _smallest(pairs: Pairs, direction: str | None, confidence: float) -> float | None:
    """Return the smallest detectable effect, by bisection: a larger injected change is detected in more pairs."""
    wanted = math.ceil(_POWER * len(pairs))

    def shown(effect: float) -> bool:
        planted = 1.0 / (1.0 + effect) - 1.0 if direction == "higher" else effect  # the direction of a regression
        return _count_different(pairs, planted, confidence) >= wanted

    low, high = 0.0, 0.001
    while not shown(high):
        low, high = high, high * 2.0
        if high > _LARGEST:
            return None
    for _ in range(6):
        middle = (low + high) / 2.0
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def _spread(pairs: Pairs) -> float | None:
    """Return the spread within the sides of pairs, so that slow drift over the whole test does not count."""
    sides = [side for pair in pairs for side in pair if len(side) > 1]
    centre = mean([value for side in sides for value in side])
    if not centre or not sides:
        return None
    return math.sqrt(mean([variance(side, mean(side)) for side in sides])) / abs(centre)
