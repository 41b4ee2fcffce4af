"""Whether a number is beyond a limit: certain, certainly not, or not to be told from its repetitions."""

import math
from typing import Literal

from benchhouse.analysis.student import critical_t

Standing = Literal["beyond", "within", "unsure"]


def interval_of(mean: float, stdev: float | None, n: int, confidence: float = 0.95) -> tuple[float, float] | None:
    """Student's, over the trials of one run; None for a single trial."""
    if n < 2 or stdev is None:
        return None
    half = critical_t(confidence, n - 1) * stdev / math.sqrt(n)
    return mean - half, mean + half


def stands(
    mean: float, interval: tuple[float, float] | None, limit: float, side: Literal["above", "below"]
) -> Standing:
    """Beyond is where the whole interval is; a single value decides alone. A mean beyond it may still be noise."""
    low, high = interval or (mean, mean)
    if side == "below":
        mean, low, high, limit = -mean, -high, -low, -limit
    if low > limit:
        return "beyond"
    return "within" if mean <= limit else "unsure"
