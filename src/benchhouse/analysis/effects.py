"""Effect sizes: how large a difference is beside the spread, and how far two samples are apart in order."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from benchhouse.analysis.summary import mean, variance


def hedges_g(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Mean of b minus mean of a in pooled standard deviations, corrected for small n.

    None where it is undefined: fewer than two values on a side, or different constants without any spread.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    a, b = sorted(a), sorted(b)
    mean_a, mean_b = mean(a), mean(b)
    df = len(a) + len(b) - 2
    pooled = math.sqrt(((len(a) - 1) * variance(a, mean_a) + (len(b) - 1) * variance(b, mean_b)) / df)
    if pooled == 0.0:
        return 0.0 if mean_a == mean_b else None
    return (mean_b - mean_a) / pooled * (1.0 - 3.0 / (4.0 * df - 1.0))


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float:
    """P(b > a) - P(b < a) over all pairs: -1 and 1 when the samples do not overlap, 0 when neither leads."""
    ordered = sorted(a)
    wins = sum(bisect_left(ordered, value) - (len(ordered) - bisect_right(ordered, value)) for value in b)
    return wins / (len(a) * len(b))
