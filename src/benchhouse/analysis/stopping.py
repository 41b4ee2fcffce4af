"""When are there repetitions enough? Looks are few and planned, and what looks enough is confirmed by a further round.

Stopping when an interval looks narrow picks the samples whose spread came out too small, and a plain 95% interval would
then cover the truth 92% of the time. So looks lie a factor apart instead of after every repetition; after the look that
is satisfied, repetitions go on up to the next one, which had no say in it; and intervals of such samples are made at
SPENT. `docs/design/statistics.md` has the coverage.
"""

import math
from collections.abc import Sequence

from benchhouse.analysis.student import critical_t
from benchhouse.analysis.summary import finite, mean, variance

FEWEST = 5
GROWTH = 1.6  # each look has so many times the repetitions of the one before
CONFIDENCE = 0.95
SPENT = 0.12
"""The share of an interval's error rate that looking early costs: a 95% interval is then made as a 95.6% one."""


def looks(fewest: int, most: int) -> list[int]:
    """Numbers of repetitions after which it is asked whether that is enough; the last is `most`."""
    planned = [fewest]
    while planned[-1] < most:
        planned.append(min(most, max(planned[-1] + 1, math.ceil(planned[-1] * GROWTH))))
    return planned


def half_width(values: Sequence[float]) -> float | None:
    """Half the 95% interval of the mean as a share of it; None where the mean is zero or n below 3."""
    values = finite(values)
    n = len(values)
    if n < 3:
        return None
    centre = mean(values)
    if centre == 0.0:
        return 0.0 if not any(values) else None
    return critical_t(CONFIDENCE, n - 1) * math.sqrt(variance(values, centre) / n) / abs(centre)


def settled(values: Sequence[float], ci: float) -> bool:
    """Whether the mean is known to `ci` of itself, either way."""
    width = half_width(values)
    return width is not None and width <= ci


def enough(values: Sequence[float | None], known: int, count: int, ci: float, fewest: int, most: int) -> bool | None:
    """Whether a point that had `count` repetitions needs no further; None where that hangs on values not yet known.

    `values` are in order (None: failed), the first `known` of them have ended. A pure function of these, so that a run
    that is resumed stops at the same place.
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
    """The confidence at which to make the interval of samples that were stopped early."""
    return 1.0 - (1.0 - confidence) * (1.0 - SPENT)
