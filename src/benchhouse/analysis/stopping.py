"""Decide when there are enough repetitions: looks are few and planned, and another round confirms a look that is
satisfied.

Stopping as soon as an interval looks narrow selects samples whose spread is too small by chance: a plain 95% interval
would then cover the truth 92% of the time. Therefore looks are a factor apart instead of after every repetition; after
a satisfied look, repetitions continue to the next one, which had no part in the decision; and intervals of such samples
account for SPENT. `docs/design/statistics.md` has the coverage.
"""

import math
from collections.abc import Sequence

from benchhouse.analysis.student import critical_t
from benchhouse.analysis.summary import finite, mean, variance

FEWEST = 5
GROWTH = 1.6  # factor between the repetitions of consecutive looks
CONFIDENCE = 0.95
SPENT = 0.12
"""The share of an interval's error rate that early looks cost: a 95% interval is then computed as a 95.6% one."""


def looks(fewest: int, most: int) -> list[int]:
    """Return the numbers of repetitions after which the precision is checked; the last is `most`."""
    planned = [fewest]
    while planned[-1] < most:
        planned.append(min(most, max(planned[-1] + 1, math.ceil(planned[-1] * GROWTH))))
    return planned


def half_width(values: Sequence[float]) -> float | None:
    """Return half the 95% interval of the mean as a share of it; None if the mean is zero or n is below 3."""
    values = finite(values)
    n = len(values)
    if n < 3:
        return None
    centre = mean(values)
    if centre == 0.0:
        return 0.0 if not any(values) else None
    return critical_t(CONFIDENCE, n - 1) * math.sqrt(variance(values, centre) / n) / abs(centre)


def settled(values: Sequence[float], ci: float) -> bool:
    """Whether the half width of the mean's 95% interval is at most `ci`, as a share of the mean."""
    width = half_width(values)
    return width is not None and width <= ci


def enough(values: Sequence[float | None], known: int, count: int, ci: float, fewest: int, most: int) -> bool | None:
    """Whether a point with `count` repetitions needs no more; None if that depends on values not yet known.

    `values` are in order (None: failed), of which the first `known` have ended. This is a pure function, so that a
    resumed run stops at the same place.
    """
    planned = looks(fewest, most)
    for at, look in enumerate(planned[:-1]):
        if look > count:
            break
        if look > known:
            return None
        if settled([value for value in values[:look] if value is not None], ci):
            return count >= planned[at + 1]
    return count >= most


def widened(confidence: float) -> float:
    """Return the confidence for the interval of samples that were stopped early."""
    return 1.0 - (1.0 - confidence) * (1.0 - SPENT)
