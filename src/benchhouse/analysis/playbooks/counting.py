"""Faults that come and go: a signal that was far off in so many trials that chance is no answer, and quiet in the rest.

A mean over trials that were hit and trials that were not has the spread of the fault itself, so no test of means finds
it. Trials are counted instead: hit or not, in the run and in its base, by Fisher's exact test. What is hit is decided
on both sides' values alike, so that the test is exact whatever their distribution. And the trials that were hit must
be the slow ones: a series that comes and goes for itself explains nothing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchhouse.analysis.playbooks.moving import (
    FAR,
    LEAST_TRIALS,
    Stat,
    Way,
    distance_of,
    median,
    named,
    robust_spread,
    tell,
    unit_words,
    values,
)
from benchhouse.analysis.playbooks.values import Evidence, Signal
from benchhouse.analysis.summary import mean

P = 0.025
"""One-sided. Where both runs are hit at one rate, whatever it is, at most 1.3% of the pairs get there (3 to 20 trials a
side): for one given number of hits the test has few steps, and most pairs have another number. All of the run and none
of the base are enough at three trials, too, though that is 5% of the pairs with three hits: 1.6% of all."""
SURE_P = 0.01
_QUIET = 0.75
"""Of the base's trials: as many of the lowest of both sides are taken as quiet, so the base may have had hiccups."""
_SLOWER = 0.9  # of all pairs of a trial that was hit and one that was not, in the run: the first must be the slower one

Slowness = Sequence[Mapping[str, float]]  # for each number that got worse: the run's trials, larger is worse


class Hits(NamedTuple):
    """Which trials were hit, by their place; how far those of the run lie from the quiet ones."""

    base: list[int]
    now: list[int]
    beyond: float
    distance: float
    p_value: float


def count_hits(base: Sequence[float], now: Sequence[float], way: Way, least: float, ratio: float = 0.0) -> Hits | None:
    """The hits of a run beside those of its base, or None where chance or trifles may have made them."""
    if min(len(base), len(now)) < LEAST_TRIALS:
        return None
    sign = 1.0 if way == "up" else -1.0
    quiet = sorted(sign * value for value in (*base, *now))[: math.ceil(_QUIET * len(base))]
    level, top = abs(median(quiet)), quiet[-1]
    spread = robust_spread([top - value for value in quiet])
    needed = max(least, ratio * level)
    sides = [
        [
            at
            for at, value in enumerate(side)
            if (over := sign * value - top) >= needed and over > 0 and distance_of(over, spread, level, least) >= FAR
        ]
        for side in (base, now)
    ]
    if not sides[1]:
        return None
    p = chance(len(sides[1]), len(now), len(sides[0]), len(base))
    complete = len(sides[1]) == len(now) and not sides[0]
    over = mean([sign * now[at] - top for at in sides[1]])
    return Hits(sides[0], sides[1], over, distance_of(over, spread, level, least), p) if p <= P or complete else None


def chance(hit: int, of: int, base_hit: int, base_of: int) -> float:
    """That so many hits or more fall on the run, were they spread over all trials by chance (Fisher, one-sided)."""
    total = hit + base_hit
    ways = sum(math.comb(of, at) * math.comb(base_of, total - at) for at in range(hit, min(of, total) + 1))
    return ways / math.comb(of + base_of, total)


def find_hits(signal: Signal, way: Way, least: float, ratio: float, stat: Stat, slowness: Slowness) -> Evidence | None:
    """A signal that came and went, as evidence, where the trials that it hit are the slow ones."""
    base, now = values(signal.base, stat), values(signal.now, stat)
    found = count_hits(base, now, way, least, ratio)
    if found is None:
        return None
    hit = [signal.now[at].trial_id for at in found.now]
    if not any(_are_slow(hit, trials) for trials in slowness):
        return None
    order = found.now + [at for at in range(len(now)) if at not in found.now]
    unit = unit_words(signal.unit)
    typical = tell(median([now[at] for at in found.now]))
    before = f"{len(found.base)} of {len(base)}" if found.base else f"none of {len(base)}"
    rest = [now[at] for at in order[len(hit) :]] + [value for at, value in enumerate(base) if at not in found.base]
    words = (
        f"{named(signal, stat)} was about {typical} {unit}in {len(hit)} of {len(now)} trials, the slow ones, and in "
    )
    words += f"{before} of the base (else about {tell(median(rest))} {unit}"
    return Evidence(
        scope=signal.scope,
        series=signal.series,
        unit=signal.unit,
        phase=signal.phase,
        stat=stat,
        base=base,
        now=[now[at] for at in order],
        trials=[signal.now[at].trial_id for at in order],
        hits=len(hit),
        distance=found.distance,
        p_value=found.p_value,
        says=f"{words.rstrip()}; by chance {found.p_value:.1%})",
    )


def _are_slow(hit: Sequence[str], slowness: Mapping[str, float]) -> bool:
    """Whether the trials that were hit are slower than the run's others, but for few pairs; so where all were hit."""
    others = [value for trial, value in slowness.items() if trial not in hit]
    pairs = [(slowness[trial], other) for trial in hit if trial in slowness for other in others]
    return bool(slowness) and sum(own > other for own, other in pairs) >= _SLOWER * len(pairs)
