"""Properties of a sample that turn the interval of its mean into a mere spread."""

from collections.abc import Sequence
from operator import lt, sub

_FEWEST = 5  # values that may show two modes, at least two in each: a single far value is an outlier
_FAR = 4.0  # ratio of a gap to the width of the values on either side of it


def doubt(values: Sequence[float]) -> str:
    """Return the reason as one clause, or "". A sample without any spread gives "", because the caller shows `no
    spread`.
    """
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
    at = len(gaps) - gaps[::-1].index(gap)  # the last of equal gaps
    widest = max(ordered[at - 1] - ordered[0], ordered[-1] - ordered[at])
    return 2 <= at <= len(ordered) - 2 and gap > _FAR * widest
