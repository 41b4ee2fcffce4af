"""Whether a signal moved: far outside the spread of its repetitions, and by enough to matter."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from benchhouse.analysis.compare import p_value
from benchhouse.analysis.playbooks.values import Evidence, Reading, Signal
from benchhouse.analysis.summary import mean, variance

LEAST_TRIALS = 3  # repetitions a side: of fewer, nobody knows the spread
FAR = 4.0  # spreads of the base's repetitions that the mean must have moved
P = 0.01  # and Welch's test of the repetitions must say so
FARTHEST = 99.0
_LEAST_SPREAD = 0.01  # of the base's mean: what never varied at all is not known to a hair's breadth
_MAD = 1.4826
_MOST_ODD = 1 / 3  # of the members: more than that is not one that lags

ODD_P = 0.025
"""A member that lags in some trials only: that it is the same one in all of these may be chance to that much."""

Way = Literal["up", "down"]
Stat = Literal["avg", "peak", "range"]


class Shift(NamedTuple):
    """How far one sample lies from another."""

    difference: float
    distance: float
    p_value: float | None


def shift(base: Sequence[float], now: Sequence[float], way: Way, least: float, ratio: float = 0.0) -> Shift | None:
    """From `base` to `now`, or None where it is not far, not this way, or not enough to matter.

    `least` is in the unit of the series, `ratio` a fraction of the base's mean; both must be reached.
    """
    if min(len(base), len(now)) < LEAST_TRIALS:
        return None
    before = mean(base)
    difference = mean(now) - before
    if (difference > 0) != (way == "up") or abs(difference) < max(least, ratio * abs(before)):
        return None
    distance = distance_of(difference, math.sqrt(variance(base, before)), before, least)
    p = p_value(base, now)
    return Shift(difference, distance, p) if distance >= FAR and p is not None and p <= P else None


def find_shift(
    signal: Signal, way: Way, least: float, ratio: float, stat: Stat, normal: float | None
) -> Evidence | None:
    """The shift of a signal as evidence. Where the base has no such series, `normal` is what a healthy one reads."""
    now, base = values(signal.now, stat), values(signal.base, stat)
    against = "base"
    if not base and normal is not None and len(now) >= LEAST_TRIALS:
        base, against = [normal] * len(now), "normal"
    found = shift(base, now, way, least, ratio)
    if found is None:
        return None
    rose = "rose" if way == "up" else "fell"
    words = f"{named(signal, stat)} {rose} from {tell(mean(base))} to {tell(mean(now))}"
    return Evidence(
        scope=signal.scope,
        series=signal.series,
        unit=signal.unit,
        phase=signal.phase,
        stat=stat,
        base=base,
        now=now,
        trials=[one.trial_id for one in signal.now],
        distance=found.distance,
        p_value=found.p_value,
        against=against,
        says=f"{words} {unit_words(signal.unit)}({_how_far(found.distance, against)})",
    )


def values(readings: Sequence[Reading], stat: Stat) -> list[float]:
    """One a trial; readings without extremes give their mean."""
    if stat == "peak":
        return [one.avg if one.peak is None else one.peak for one in readings]
    if stat == "range":
        return [0.0 if one.peak is None or one.low is None else one.peak - one.low for one in readings]
    return [one.avg for one in readings]


class Odd(NamedTuple):
    """The member that stands out among its peers."""

    member: str
    own: list[float]
    peers: list[float]  # the other members' own levels
    excess: float
    distance: float


def odd_one_out(
    readings: Mapping[str, Sequence[Reading]], way: Way, least: float, ratio: float, stat: Stat = "avg"
) -> Odd | None:
    """The one member of three or more that lies far from all others, this way; None where several do.

    What hits all members of a trial alike is taken out first, where every member is in every trial.
    """
    known = {name: rows for name, rows in readings.items() if len(rows) >= LEAST_TRIALS}
    if len(known) < 3:
        return None
    level = _levelled(known, stat)
    sign = 1.0 if way == "up" else -1.0
    found: list[Odd] = []
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
            found.append(Odd(name, own, centres, excess, distance))
    if not found or len(found) > max(1, int(len(level) * _MOST_ODD)):
        return None
    return max(found, key=lambda one: abs(one.excess))


def _levelled(known: Mapping[str, Sequence[Reading]], stat: Stat) -> dict[str, list[float]]:
    by_trial: dict[str, dict[str, float]] = {}
    for name, rows in known.items():
        for row, value in zip(rows, values(rows, stat), strict=True):
            by_trial.setdefault(row.trial_id, {})[name] = value
    plain = {name: values(rows, stat) for name, rows in known.items()}
    if any(len(row) < len(known) for row in by_trial.values()):
        return plain
    centres = {trial: median(list(row.values())) for trial, row in by_trial.items()}
    whole = median(list(centres.values()))
    if whole == 0 or any(centre == 0 for centre in centres.values()):
        return plain
    return {
        name: [by_trial[row.trial_id][name] / centres[row.trial_id] * whole for row in rows]
        for name, rows in known.items()
    }


def distance_of(difference: float, spread: float, level: float, least: float) -> float:
    """In spreads; one smaller than a hundredth of the level, or than a tenth of what matters, is taken as that."""
    smallest = max(_LEAST_SPREAD * abs(level), 0.1 * least, 1e-300)
    return min(abs(difference) / max(spread, smallest), FARTHEST)


def robust_spread(deviations: Sequence[float]) -> float:
    return _MAD * median([abs(value) for value in deviations]) if deviations else 0.0


def median(items: Sequence[float]) -> float:
    ordered = sorted(items)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _how_far(distance: float, against: str) -> str:
    if against == "normal":
        return "the base has no such series; a healthy one reads 0"
    more = "more than " if distance >= FARTHEST else ""
    return f"{more}{distance:.0f} spreads of its repetitions"


def tell(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def named(signal: Signal, stat: Stat) -> str:
    return {"avg": "", "peak": "peak of ", "range": "range of "}[stat] + f"{signal.series} of {signal.scope}"


def unit_words(unit: str) -> str:
    return "" if unit == "1" else f"{unit} "
