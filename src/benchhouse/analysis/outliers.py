"""The declared policies for values that lie far off. Nothing is left out unless a person says so, nor silently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Policy = Literal["keep", "mad"]
FAR = 5.0
"""Robust standard deviations from the median."""
FEWEST = 5
"""Of fewer values none can be called far off."""

_MAD = 1.4826


def far_off(values: Sequence[float]) -> list[bool]:
    """Which values lie more than FAR robust deviations (median absolute deviation) from the median."""
    if len(values) < FEWEST:
        return [False] * len(values)
    middle = _median(values)
    spread = _MAD * _median([abs(value - middle) for value in values])
    return [spread > 0.0 and abs(value - middle) > FAR * spread for value in values]


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    at = len(ordered) // 2
    return ordered[at] if len(ordered) % 2 else (ordered[at - 1] + ordered[at]) / 2.0
