"""A/A pairs: how often do equal things look different here, and what is the smallest change that would be found?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.compare import CONFIDENCE, Pair, compare_many
from benchhouse.analysis.proportions import exact_interval
from benchhouse.analysis.summary import mean, variance

_POWER = 0.8
_LARGEST = 1.0
_SEED = 20_240_229
_ALIKE = ("no evidence of a difference", "too few repetitions")


@dataclass(frozen=True, slots=True)
class Tested:
    """What A/A pairs of one metric say."""

    pairs: int
    false_positives: int
    rate: float
    rate_interval: tuple[float, float]
    cv: float | None
    """Standard deviation of a trial within a pair, relative to the mean; None where that is zero."""
    smallest_effect: float | None
    """The smallest relative change that 4 of 5 of these pairs show when it is planted; None: none up to 2x."""


def split(values: Sequence[float], repetitions: int) -> list[tuple[list[float], list[float]]]:
    """Pairs from one series of trials in order: neighbours take turns on the sides, so that drift hits both alike."""
    size = 2 * repetitions
    blocks = [values[at : at + size] for at in range(0, len(values) - size + 1, size)]
    return [(list(block[::2]), list(block[1::2])) for block in blocks]


def judge_pairs(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    direction: Literal["higher", "lower"] | None = None,
    *,
    confidence: float = CONFIDENCE,
) -> Tested:
    """Compare each pair as `bench compare` would, then again with a change planted into B."""
    wrong = _found(pairs, 0.0, confidence)
    interval = exact_interval(wrong, len(pairs))
    return Tested(
        len(pairs), wrong, wrong / len(pairs), interval, _spread(pairs), _smallest(pairs, direction, confidence)
    )


def _found(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], effect: float, confidence: float) -> int:
    """How many pairs look different when B is larger by `effect`."""
    asked = [Pair(a, [value * (1.0 + effect) for value in b]) for a, b in pairs]
    results = compare_many(asked, seed=_SEED, confidence=confidence)
    return sum(result.verdict not in _ALIKE for result in results)


def _smallest(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], direction: str | None, confidence: float
) -> float | None:
    """By bisection: the more is planted, the more pairs show it."""
    sign = -1.0 if direction == "higher" else 1.0  # what a regression would look like
    wanted = math.ceil(_POWER * len(pairs))

    def shown(effect: float) -> bool:
        planted = 1.0 / (1.0 + effect) - 1.0 if sign < 0.0 else effect
        return _found(pairs, planted, confidence) >= wanted

    low, high = 0.0, 0.001
    while not shown(high):
        low, high = high, high * 2.0
        if high > _LARGEST:
            return None
    for _ in range(6):
        middle = (low + high) / 2.0
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def _spread(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Within the sides of pairs, so that slow drift over the whole test does not count."""
    sides = [side for pair in pairs for side in pair if len(side) > 1]
    centre = mean([value for side in sides for value in side])
    if not centre or not sides:
        return None
    return math.sqrt(mean([variance(side, mean(side)) for side in sides])) / abs(centre)
