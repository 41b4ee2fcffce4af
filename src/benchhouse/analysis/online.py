"""Watch new runs against an accepted baseline: alarm a few runs after a step, and never follow a slow drift.

The baseline is fixed when it is accepted. What comes later is compared with it alone and never becomes part of it, so
a hundred small steps add up to an alarm as one large one does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.changes import find_changes
from benchhouse.analysis.summary import finite

NEEDED = 10
"""Runs of history from which noise can be learned."""
WINDOW = 50
"""An alarm's beginning is looked for in so many last runs."""
LIMIT = 3.55
"""Standard errors from the baseline that raise an alarm."""

_CLIP = 2.7
_SMALLEST_LEVEL = 1e-300


@dataclass(frozen=True, slots=True)
class Baseline:
    """The accepted level and the noise around it: logarithms where `logs`, else in the metric's unit."""

    level: float
    spread: float
    memory: float
    n: int
    logs: bool


@dataclass(frozen=True, slots=True)
class Alarm:
    """New runs no longer fit the baseline: noticed at `at`, since `since` (places among the new runs)."""

    at: int
    since: int
    change: float | None
    """Relative to the baseline; None where its level is zero."""
    difference: float
    z: float
    worse: bool | None
    """None where the metric has no direction."""


def learn(values: Sequence[float], *, floor: float = 0.01) -> Baseline | None:
    """The baseline that a history ends with: its last level, and its noise; None where there are too few runs."""
    found = find_changes(values, floor=floor)
    if len(values) < NEEDED or found.noise is None:
        return None
    ordered = finite(values)
    logs = min(ordered) > 0.0
    last = ordered[found.changes[-1].index if found.changes else 0 :]
    numbers = sorted(math.log(value) for value in last) if logs else sorted(last)
    cut = len(numbers) // 10  # one far value in ten must not be the level
    kept = numbers[cut : len(numbers) - cut]
    level = math.fsum(kept) / len(kept)
    # Few runs know their own spread and memory badly, and it is the small guesses that cry wolf: take the large ones.
    unsure = 1.0 / math.sqrt(len(ordered))
    spread = (found.noise.spread + found.noise.full_spread) / 2.0 * (1.0 + 0.5 * unsure)
    spread *= 1.0 if logs else _scale(values)
    memory = min(max(found.noise.raw_memory, 0.0) + (0.7 * unsure if found.noise.memory else 0.0), 0.9)
    least = floor / 5.0 * (1.0 if logs else abs(level) or 1.0)
    return Baseline(level, max(spread, least), memory, len(last), logs)


def _scale(values: Sequence[float]) -> float:
    """What `find_changes` divides a history by that has values of zero or less."""
    ordered = sorted(abs(value) for value in values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
    return median or ordered[-1] or 1.0


def watch(
    baseline: Baseline, values: Sequence[float], direction: Literal["higher", "lower"] | None = None
) -> Alarm | None:
    """The first alarm among `values`, the runs since the baseline was accepted, oldest first.

    At each run, every beginning in the last runs is tried: how far are the runs since then from the baseline, in
    standard errors? Noise that remembers is whitened first, with the memory that was learned.
    """
    off = [_off(baseline, value) for value in finite(values)]
    error = baseline.spread * math.sqrt(1.0 - baseline.memory**2)
    steps = [
        (own - baseline.memory * before) / error for before, own in zip([0.0, *off], off, strict=False)
    ]  # the noise of each run that the run before does not explain
    steps = [min(max(step, -_CLIP), _CLIP) for step in steps]
    keep = 1.0 - baseline.memory
    # The level itself is known only so well: what it may be off by counts in every later run.
    doubt = (1.0 + baseline.memory) / (1.0 - baseline.memory) / baseline.n * (baseline.spread / error) ** 2
    for at in range(len(steps)):
        since, z = _farthest(steps[max(0, at - WINDOW + 1) : at + 1], keep, doubt)
        if abs(z) >= LIMIT:
            return _alarm(baseline, off, max(0, at - WINDOW + 1) + since, at, z, direction)
    return None


def _farthest(steps: Sequence[float], keep: float, doubt: float) -> tuple[int, float]:
    """The beginning from which the last runs are farthest from the baseline, and how far in standard errors.

    A step of one moves the first whitened run by 1 and each later one by `keep`.
    """
    best, farthest = 0, 0.0
    later, weight = 0.0, 0.0
    for since in range(len(steps) - 1, -1, -1):
        moved, known = steps[since] + later, 1.0 + weight
        z = moved / known / math.sqrt(1.0 / known + doubt)
        if abs(z) > abs(farthest):
            best, farthest = since, z
        later, weight = later + keep * steps[since], weight + keep * keep
    return best, farthest


def _alarm(baseline: Baseline, off: Sequence[float], since: int, at: int, z: float, direction: str | None) -> Alarm:
    shift = math.fsum(off[since : at + 1]) / (at + 1 - since)
    if baseline.logs:
        change: float | None = math.expm1(shift)
        difference = math.exp(baseline.level) * math.expm1(shift)
    else:
        difference = shift
        change = shift / abs(baseline.level) if abs(baseline.level) > _SMALLEST_LEVEL else None
    worse = None if direction is None else (z > 0.0) == (direction == "lower")
    return Alarm(at, since, change, difference, z, worse)


def _off(baseline: Baseline, value: float) -> float:
    if not baseline.logs:
        return value - baseline.level
    # A metric that was positive and no longer is has not merely moved by some percent.
    return math.log(max(value, _SMALLEST_LEVEL)) - baseline.level
