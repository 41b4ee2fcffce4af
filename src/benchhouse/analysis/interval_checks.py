"""What a sample itself shows against an interval of its mean: then that is a spread and no more."""

from collections.abc import Sequence
from operator import lt, sub

_FEWEST = 5  # values that may show two modes, two of each at least: one far value is an outlier
_FAR = 4.0  # a gap so many times as wide as what lies on either side of it


def doubt(values: Sequence[float]) -> str:
    """One clause, or nothing. Values without any spread are left to whoever shows them: `no spread` says enough."""
    ordered = sorted(values)
    distinct = 1 + sum(map(lt, ordered, ordered[1:]))
    if distinct == 2 < len(ordered):
        return "only 2 distinct values: a spread, not an interval"
    if len(ordered) >= _FEWEST and distinct > 2 and _has_two_modes(ordered):
        return "two far modes: a spread, not an interval"
    return ""


def _has_two_modes(ordered: Sequence[float]) -> bool:
    gaps = list(map(sub, ordered[1:], ordered))
    gap = max(gaps)
    at = len(gaps) - gaps[::-1].index(gap)  # of equal gaps the last
    widest = max(ordered[at - 1] - ordered[0], ordered[-1] - ordered[at])
    return 2 <= at <= len(ordered) - 2 and gap > _FAR * widest
