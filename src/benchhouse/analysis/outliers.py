"""The declared policies for outliers. Values are excluded only if a person requests it, and never silently."""

from collections.abc import Sequence
from statistics import median
from typing import Literal

Policy = Literal["keep", "mad"]
FAR = 5.0  # robust standard deviations from the median
FEWEST = 5  # with fewer values, none can be called an outlier

_MAD = 1.4826


def far_off(values: Sequence[float]) -> list[bool]:
    """Return which values lie more than FAR robust standard deviations (median absolute deviation) from the median."""
    if len(values) < FEWEST:
        return [False] * len(values)
    middle = median(values)
    spread = _MAD * median([abs(value - middle) for value in values])
    return [spread > 0.0 and abs(value - middle) > FAR * spread for value in values]
