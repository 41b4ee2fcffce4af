"""What a sample itself shows against an interval of its mean: then that is a spread and no more."""

from collections.abc import Sequence
from itertools import pairwise

_FEWEST = 5  # values that may show two modes, two of each at least: one far value is an outlier
_FAR = 4.0  # a gap so many times as wide as what lies on either side of it


def doubt(values: Sequence[float]) -> str:
    """One clause, or nothing. Values without any spread are left to whoever shows them: `no spread` says enough."""
    ordered = sorted(values)
    distinct = 1 + sum(below < above for below, above in pairwise(ordered))
    if distinct == 2 < len(ordered):
        return "only 2 distinct values: a spread, not an interval"
    if len(ordered) >= _FEWEST and distinct > 2 and _has_two_modes(ordered):
        return "two far modes: a spread, not an interval"
    return ""


def _has_two_modes(ordered: Sequence[float]) -> bool:
    gap, at = max((above - below, at) for at, (below, above) in enumerate(pairwise(ordered), 1))
    widest = max(ordered[at - 1] - ordered[0], ordered[-1] - ordered[at])
    return 2 <= at <= len(ordered) - 2 and gap > _FAR * widest
