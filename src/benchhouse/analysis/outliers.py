"""The declared policies for values that lie far off. Nothing is left out unless a person says so, nor silently."""

from collections.abc import Sequence
from statistics import median
from typing import Literal

Policy = Literal["keep", "mad"]
FAR = 5.0  # robust standard deviations from the median
FEWEST = 5  # of fewer values none can be called far off

_MAD = 1.4826


def far_off(values: Sequence[float]) -> list[bool]:
    """Which values lie more than FAR robust deviations (median absolute deviation) from the median."""
    if len(values) < FEWEST:
        return [False] * len(values)
    middle = median(values)
    spread = _MAD * median([abs(value - middle) for value in values])
    return [spread > 0.0 and abs(value - middle) > FAR * spread for value in values]
