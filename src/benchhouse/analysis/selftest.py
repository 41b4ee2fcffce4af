"""A/A pairs: how often do equal things look different here, and what is the smallest change that would be found?"""

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
    """What A/A pairs of one metric say."""

    pairs: int
    false_positives: int
    rate: float
    rate_interval: tuple[float, float]
    cv: float | None  # standard deviation of a trial within a pair, relative to the mean; None where that is zero
    smallest_effect: float | None
    """The smallest relative change that 4 of 5 of these pairs show when it is planted; None: none up to 2x."""


def split(values: Sequence[float], repetitions: int) -> list[tuple[list[float], list[float]]]:
    """Pairs from one series of trials in order: neighbours take turns on the sides, so that drift hits both alike."""
    size = 2 * repetitions
    blocks = [values[at : at + size] for at in range(0, len(values) - size + 1, size)]
    return [(list(block[::2]), list(block[1::2])) for block in blocks]


def judge_pairs(
    pairs: Pairs,
    direction: Literal["higher", "lower"] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> Tested:
    """Compare each pair as `bench compare` would, then again with a change planted into B."""
    n, wrong = len(pairs), _count_different(pairs, 0.0, confidence)
    smallest = _smallest(pairs, direction, confidence)
    return Tested(n, wrong, wrong / n, exact_interval(wrong, n), _spread(pairs), smallest)


def exact_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Both ends; the interval covers the true rate at least as often as `confidence` says, for every n."""
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
    """How many pairs look different when B is larger by `effect`."""
    planted = [Pair(a, [value * (1.0 + effect) for value in b]) for a, b in pairs]
    results = compare_many(planted, seed=SEED, confidence=confidence)
    return sum(result.verdict not in _ALIKE for result in results)


def _smallest(pairs: Pairs, direction: str | None, confidence: float) -> float | None:
    """By bisection: the more is planted, the more pairs show it."""
    wanted = math.ceil(_POWER * len(pairs))

    def shown(effect: float) -> bool:
        planted = 1.0 / (1.0 + effect) - 1.0 if direction == "higher" else effect  # as a regression would look
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
    """Within the sides of pairs, so that slow drift over the whole test does not count."""
    sides = [side for pair in pairs for side in pair if len(side) > 1]
    centre = mean([value for side in sides for value in side])
    if not centre or not sides:
        return None
    return math.sqrt(mean([variance(side, mean(side)) for side in sides])) / abs(centre)
