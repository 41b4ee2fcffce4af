"""Whether a signal moved far outside the spread of its repetitions and by enough to matter, or was intermittent.

A mean over trials with and without an intermittent fault includes the fault in its spread, so no test of means detects
it. Trials are counted instead, hit or not, in the run and in its base, by Fisher's exact test. The threshold for a hit
depends on both sides' values alike, so the test is exact whatever their distribution. In addition, the hit trials must
be the slow ones: an intermittent series alone explains nothing.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple

from benchhouse.analysis.compare import p_value
from benchhouse.analysis.playbooks.values import SeriesReading, Signal, SignalEvidence
from benchhouse.analysis.summary import mean, variance

LEAST_TRIALS = 3  # repetitions per side: with fewer, the spread is unknown
FAR = 4.0  # spreads of the base's repetitions by which the mean must have moved
P = 0.01  # and limit for the p-value of Welch's test of the repetitions
FARTHEST = 99.0
# share of the base's mean: minimum spread, because a series without any variation is still not known exactly
_LEAST_SPREAD = 0.01
_MAD = 1.4826
_MOST_ODD = 1 / 3  # share of the members: if more deviate, they are not outliers

ODD_P = 0.025
"""Largest probability that a member that lags only in some trials is the same one in all of these by chance."""
HITS_P = 0.025
"""One-sided limit. If both runs are hit at the same rate, at most 1.3% of pairs reach it, whatever the rate (3 to 20
trials per side): for one given number of hits the test has few steps, and most pairs have another number. All trials of
the run and none of the base also suffice, even with three trials, although that is 5% of the pairs with three hits:
1.6% of all.
"""
SURE_P = 0.01
_QUIET = 0.75
"""Share of the base's trials: this many of the lowest values of both sides count as quiet, so the base may have some
hits.
"""
# share of all pairs of a hit and an unhit trial of the run in which the hit one must be slower
_SLOWER = 0.9

Slowness = Sequence[Mapping[str, float]]  # for each number that got worse: the run's trials, larger is worse

Way = Literal["up", "down"]
Stat = Literal["avg", "peak", "range"]


class Shift(NamedTuple):
    """How far one sample is from another."""

    difference: float
    distance: float
    p_value: float | None


def shift(base: Sequence[float], now: Sequence[float], way: Way, least: float, ratio: float = 0.0) -> Shift | None:
    """Return the shift from `base` to `now`; None if it is not far, not in this direction, or too small to matter.

    `least` is in the unit of the series, `ratio` a fraction of the base's mean; both must be reached.
    """
    if min(len(base), len(now)) < LEAST_TRIALS:
        return None
    before = mean(base)
    difference = mean(now) - before
    if (difference > 0) != (way == "up") or abs(difference) < max(least, ratio * abs(before)):
        return None
    distance = distance_of(difference, math.sqrt(variance(base, before)), before, least)
    p = p_value(base, now, definition=2)  # the definition with which these limits were chosen (benchmarks/playbooks.py)
    return Shift(difference, distance, p) if distance >= FAR and p is not None and p <= P else None


def find_shift(
    signal: Signal, way: Way, least: float, ratio: float, stat: Stat, normal: float | None
) -> SignalEvidence | None:
    """Return the shift of a signal as evidence, or None. If the base has no such series, `normal` is the reading of a
    healthy one.
    """
    now, base = values(signal.now, stat), values(signal.base, stat)
    against = "base"
    if not base and normal is not None and len(now) >= LEAST_TRIALS:
        base, against = [normal] * len(now), "normal"
    moved = shift(base, now, way, least, ratio)
    if moved is None:
        return None
    rose = "rose" if way == "up" else "fell"
    sentence = f"{_name(signal, stat)} {rose} from {figure(mean(base))} to {figure(mean(now))}"
    if against == "normal":
        how_far = "the base has no such series; a healthy one reads 0"
    else:
        more = "more than " if moved.distance >= FARTHEST else ""
        how_far = f"{more}{moved.distance:.0f} spreads of its repetitions"
    facts = {"distance": moved.distance, "p_value": moved.p_value, "against": against}
    return _evidence(signal, stat, base, range(len(now)), f"{sentence} {with_unit(signal.unit)}({how_far})", facts)


def values(readings: Sequence[SeriesReading], stat: Stat) -> list[float]:
    """Return one value per trial; readings without extremes give their mean."""
    if stat == "peak":
        return [row.avg if row.peak is None else row.peak for row in readings]
    if stat == "range":
        return [0.0 if row.peak is None or row.low is None else row.peak - row.low for row in readings]
    return [row.avg for row in readings]


class Outlier(NamedTuple):
    """The member that deviates from its peers."""

    member: str
    own: list[float]
    peers: list[float]  # the other members' own levels
    excess: float
    distance: float


def odd_one_out(
    readings: Mapping[str, Sequence[SeriesReading]], way: Way, least: float, ratio: float, stat: Stat = "avg"
) -> Outlier | None:
    """Return the one member of three or more that is far from all others in this direction; None if several are.

    What affects all members of a trial equally is removed first, if every member is in every trial.
    """
    known = {name: rows for name, rows in readings.items() if len(rows) >= LEAST_TRIALS}
    if len(known) < 3:
        return None
    return odd_of_levels(_levelled(known, stat), way, least, ratio)


def odd_of_levels(level: Mapping[str, Sequence[float]], way: Way, least: float, ratio: float) -> Outlier | None:
    """Return the same for values that can be compared directly."""
    sign = 1.0 if way == "up" else -1.0
    odd: list[Outlier] = []
    for name, own in level.items():
        others = {other: rows for other, rows in level.items() if other != name}
        centres = [median(rows) for rows in others.values()]
        centre = median(centres)
        excess = median(own) - centre
        if sign * excess < max(least, ratio * abs(centre)):
            continue
        within = [value - median(rows) for rows in others.values() for value in rows]
        spread = max(robust_spread(within), robust_spread([value - centre for value in centres]))
        distance = distance_of(excess, spread, centre, least)
        farthest = max(sign * value for value in centres)
        beyond = sum(sign * value - farthest >= max(least, ratio * abs(centre)) for value in own)
        always = min(sign * value for value in own) > farthest
        if distance >= FAR and (always or len(level) ** (1 - beyond) <= ODD_P):
            odd.append(Outlier(name, list(own), centres, excess, distance))
    if not odd or len(odd) > max(1, int(len(level) * _MOST_ODD)):
        return None
    return max(odd, key=lambda member: abs(member.excess))


def _levelled(known: Mapping[str, Sequence[SeriesReading]], stat: Stat) -> dict[str, list[float]]:
    by_trial: dict[str, dict[str, float]] = {}
    for name, rows in known.items():
        for row, value in zip(rows, values(rows, stat), strict=True):
            by_trial.setdefault(row.trial_id, {})[name] = value
    plain = {name: values(rows, stat) for name, rows in known.items()}
    if any(len(row) < len(known) for row in by_trial.values()):
        return plain
    centres = {trial: median(row.values()) for trial, row in by_trial.items()}
    whole = median(centres.values())
    if whole == 0 or any(centre == 0 for centre in centres.values()):
        return plain
    return {
        name: [by_trial[row.trial_id][name] / centres[row.trial_id] * whole for row in rows]
        for name, rows in known.items()
    }


def distance_of(difference: float, spread: float, level: float, least: float) -> float:
    """Return the difference in spreads. The spread is at least a hundredth of the level, and a tenth of `least`."""
    smallest = max(_LEAST_SPREAD * abs(level), 0.1 * least, 1e-300)
    return min(abs(difference) / max(spread, smallest), FARTHEST)


def robust_spread(deviations: Sequence[float]) -> float:
    return _MAD * median([abs(value) for value in deviations]) if deviations else 0.0


class Hits(NamedTuple):
    """The indexes of hit trials, and how far those of the run are from the quiet ones."""

    base: list[int]
    now: list[int]
    distance: float
    p_value: float


def count_hits(base: Sequence[float], now: Sequence[float], way: Way, least: float, ratio: float = 0.0) -> Hits | None:
    """Return the hits of a run and of its base; None if they may be due to chance or are too small."""
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
    if p > HITS_P and not complete:
        return None
    over = mean([sign * now[at] - top for at in sides[1]])
    return Hits(sides[0], sides[1], distance_of(over, spread, level, least), p)


def chance(hit: int, of: int, base_hit: int, base_of: int) -> float:
    """Return the probability that at least `hit` of all hits fall on the run by chance (Fisher, one-sided)."""
    total = hit + base_hit
    ways = sum(math.comb(of, at) * math.comb(base_of, total - at) for at in range(hit, min(of, total) + 1))
    return ways / math.comb(of + base_of, total)


def find_hits(
    signal: Signal, way: Way, least: float, ratio: float, stat: Stat, slowness: Slowness
) -> SignalEvidence | None:
    """Return an intermittent signal as evidence if the trials that it hit are the slow ones; otherwise None."""
    base, now = values(signal.base, stat), values(signal.now, stat)
    hits = count_hits(base, now, way, least, ratio)
    if hits is None:
        return None
    hit = [signal.now[at].trial_id for at in hits.now]
    if not any(_are_slow(hit, trials) for trials in slowness):
        return None
    order = hits.now + [at for at in range(len(now)) if at not in hits.now]
    unit = with_unit(signal.unit)
    typical = figure(median([now[at] for at in hits.now]))
    before = f"{len(hits.base)} of {len(base)}" if hits.base else f"none of {len(base)}"
    rest = [now[at] for at in order[len(hit) :]] + [value for at, value in enumerate(base) if at not in hits.base]
    sentence = f"{_name(signal, stat)} was about {typical} {unit}in {len(hit)} of {len(now)} trials, the slow ones, "
    sentence += f"and in {before} of the base (else about {figure(median(rest))} {unit}"
    facts = {"hits": len(hit), "distance": hits.distance, "p_value": hits.p_value}
    return _evidence(signal, stat, base, order, f"{sentence.rstrip()}; by chance {hits.p_value:.1%})", facts)


def _are_slow(hit: Sequence[str], slowness: Mapping[str, float]) -> bool:
    """Whether the hit trials are slower than the run's others, except for few pairs; True if all were hit."""
    others = [value for trial, value in slowness.items() if trial not in hit]
    pairs = [(slowness[trial], other) for trial in hit if trial in slowness for other in others]
    return bool(slowness) and sum(own > other for own, other in pairs) >= _SLOWER * len(pairs)


def _evidence(
    signal: Signal, stat: Stat, base: list[float], order: Sequence[int], says: str, facts: Mapping[str, Any]
) -> SignalEvidence:
    """Return evidence with the run's trials in this order."""
    about = {name: getattr(signal, name) for name in ("scope", "series", "unit", "phase")}
    now, trials = values(signal.now, stat), [reading.trial_id for reading in signal.now]
    ordered = {"now": [now[at] for at in order], "trials": [trials[at] for at in order]}
    return SignalEvidence.model_validate({**about, "stat": stat, "base": base, **ordered, **facts, "says": says})


def figure(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _name(signal: Signal, stat: Stat) -> str:
    return {"avg": "", "peak": "peak of ", "range": "range of "}[stat] + f"{signal.series} of {signal.scope}"


def with_unit(unit: str) -> str:
    """Return the unit followed by a space; empty for a bare number."""
    return "" if unit == "1" else f"{unit} "
