"""Watch new runs against an accepted baseline: alarm a few runs after a step, and never follow a slow drift.

The baseline is fixed when it is accepted. What comes later is compared with it alone and never becomes part of it, so
a hundred small steps add up to an alarm as one large one does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from benchhouse.analysis.changes import find_changes
from benchhouse.analysis.summary import finite

NEEDED = 10  # runs of history from which noise can be learned
WINDOW = 50  # an alarm's beginning is looked for in so many last runs


class Limits(NamedTuple):
    """Standard errors from the baseline that raise an alarm, by the runs since the beginning that is tried."""

    two: float
    three: float
    more: float


WORSE, EITHER, BETTER = Limits(3.4, 3.2, 3.7), Limits(3.55, 3.4, 3.85), Limits(4.2, 4.2, 4.2)
"""What got worse is to be told after three runs, so three need least; what got better can wait, at as few false alarms.
`EITHER` is for a metric without a direction."""

_EASED = 0.3  # less for three runs, at a memory of one: the first of them tells most
_LONG, _LONGER = 8, 0.2  # runs since a beginning that need no more evidence, and what each doubling of them needs
_CLIP, _MOST_CLIP = 2.7, 3.2  # a far run counts no more: alone it would raise an alarm with whatever follows
_MOST_FAR = 1.5  # far values of the baseline make its spread larger by so much at most: one must not blind it
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
    change: float | None  # relative to the baseline; None where its level is zero
    difference: float
    z: float
    worse: bool | None  # None where the metric has no direction


def learn(values: Sequence[float], *, floor: float = 0.01) -> Baseline | None:
    """The baseline that a history ends with: its last level, and its noise; None where there are too few runs."""
    history = find_changes(values, floor=floor)
    if len(values) < NEEDED or history.noise is None:
        return None
    ordered = finite(values)
    logs = min(ordered) > 0.0
    last = ordered[history.changes[-1].index if history.changes else 0 :]
    numbers = sorted(math.log(value) for value in last) if logs else sorted(last)
    cut = len(numbers) // 10  # one far value in ten must not be the level
    kept = numbers[cut : len(numbers) - cut]
    level = math.fsum(kept) / len(kept)
    # Few runs know their own spread and memory badly, and it is the small guesses that cry wolf: take the large ones.
    unsure = 1.0 / math.sqrt(len(ordered))
    spread = min(history.noise.full_spread, _MOST_FAR * history.noise.spread) * (1.0 + 0.5 * unsure)
    if not logs:  # `find_changes` divides such a history by this
        sizes = [abs(value) for value in ordered]
        spread *= median(sizes) or max(sizes) or 1.0
    memory = min(max(history.noise.raw_memory, 0.0) + (0.7 * unsure if history.noise.memory else 0.0), 0.9)
    least = floor / 5.0 * (1.0 if logs else abs(level) or 1.0)
    return Baseline(level, max(spread, least), memory, len(last), logs)


def watch(
    baseline: Baseline,
    values: Sequence[float],
    direction: Literal["higher", "lower"] | None = None,
    before: float | None = None,
) -> Alarm | None:
    """The first alarm among `values`, the runs since the baseline was accepted, oldest first; `before` is the run
    before them, where it is known: it tells what the first of them remembers.

    At each run, every beginning in the last runs is tried: how far are the runs since then from the baseline, in
    standard errors? Noise that remembers is whitened first, with the memory that was learned.
    """
    off = [_off(baseline, value) for value in finite(values)]
    steps = _shocks(baseline, off, [] if before is None else [_off(baseline, *finite([before]))])
    sides = {None: (EITHER, EITHER), "lower": (WORSE, BETTER), "higher": (BETTER, WORSE)}[direction]
    up, down = (_needed(side, baseline.memory) for side in sides)
    keep = 1.0 - baseline.memory
    # The level itself is known only so well: what it may be off by counts in every later run.
    doubt = (1.0 + baseline.memory) / keep / baseline.n / (1.0 - baseline.memory**2)
    for at in range(len(steps)):
        first = max(0, at - WINDOW + 1)
        since, z, beyond = _farthest(steps[first : at + 1], keep, doubt, up, down)
        if beyond >= 0.0:
            return _alarm(baseline, off, first + since, at, z, direction)
    return None


def _shocks(baseline: Baseline, off: Sequence[float], before: list[float]) -> list[float]:
    """The noise of each run that the run before does not explain, in its deviations; far ones count as nearer ones.

    Where noise remembers, the first run of a new level tells most, and is cut off later.
    """
    memory, clip = baseline.memory, min(_CLIP + baseline.memory, _MOST_CLIP)
    error = baseline.spread * math.sqrt(1.0 - memory**2)
    raw = [] if before else [own / baseline.spread for own in off[:1]]
    raw += [(own - memory * last) / error for last, own in pairwise([*before, *off])]
    return [min(max(shock, -clip), clip) for shock in raw]


def _needed(limits: Limits, memory: float) -> list[float]:
    """Standard errors that raise an alarm, for each number of runs since a beginning; one run alone never does."""
    longer = [limits.more + _LONGER * math.log2(max(1.0, runs / _LONG)) for runs in range(4, WINDOW + 1)]
    return [math.inf, limits.two, limits.three - _EASED * memory, *longer]


def _farthest(
    steps: Sequence[float], keep: float, doubt: float, up: Sequence[float], down: Sequence[float]
) -> tuple[int, float, float]:
    """The beginning since which the last runs are farthest beyond a limit; how far from the baseline, and beyond it.

    A step of one moves the first whitened run by 1 and each later one by `keep`.
    """
    best, farthest, beyond = 0, 0.0, -math.inf
    later, weight = 0.0, 0.0
    for runs, step in enumerate(reversed(steps)):
        moved, known = step + later, 1.0 + weight
        z = moved / known / math.sqrt(1.0 / known + doubt)
        over = z - up[runs] if z > 0.0 else -z - down[runs]
        if over > beyond:
            best, farthest, beyond = len(steps) - 1 - runs, z, over
        later, weight = later + keep * step, weight + keep * keep
    return best, farthest, beyond


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
