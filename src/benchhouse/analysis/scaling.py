"""A metric along an axis of load or size: how it grows, how efficiently, and where it stops growing.

Growth stops where SHARE of the highest throughput is reached: beyond that place there is almost nothing to gain. The
exact place between two measured points is unknown; it is only assumed that growth never gets steeper again. A straight
line between them (on log scales) gives a place that is too late, and continuing with the slope before gives one that is
too early. The result spans both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from benchhouse.analysis.compare import CONFIDENCE, Interval, Pair, compare_many, p_value
from benchhouse.analysis.contrast import estimate, interval

SHARE = 0.95
_NEAR = 0.9  # share of the best: below it, spread does not justify treating two stages as one level
_STEEPEST = 1.0  # on log scales: twice the load, twice the throughput
Place = Callable[[Sequence[float]], float]


class ScalingStage(NamedTuple):
    """One value of the axis, above zero, and what its trials measured there."""

    place: float
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Growth:
    """One stage relative to the first: the factor `times`; an `efficiency` of 1 is in proportion to the axis."""

    times: float | None
    times_interval: Interval | None
    efficiency: float | None
    efficiency_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Where growth stops. `at` is None if it does not stop within the axis."""

    kind: Literal["stops", "grows", "flat", "unclear"]
    """`grows`: still growing at the highest value. `flat`: nothing is gained after the first. `unclear`: the last stage
    is the highest, but cannot be distinguished from the previous one.
    """
    top: float  # the highest level: the mean of all stages that cannot be distinguished from the best
    at: float | None = None
    between: tuple[float, float] | None = None  # the stages around it
    interval: Interval | None = None
    """Covers the unknown place between the stages and the spread over trials; without the latter if a stage has one
    trial.
    """
    spread_known: bool = False


def growth(stages: Sequence[ScalingStage], *, seed: int, confidence: float = CONFIDENCE) -> list[Growth]:
    """Return the growth of each stage relative to the first of the axis, in the order given."""
    first = min(stages, key=lambda stage: stage.place)
    pairs = [Pair(first.values, stage.values, "higher") for stage in stages]
    grown = []
    for stage, compared in zip(stages, compare_many(pairs, seed=seed, confidence=confidence), strict=True):
        if stage is first or compared.change is None:
            known = 1.0 if stage is first else None
            grown.append(Growth(known, None, known, None))
            continue
        times, ends, step = 1.0 + compared.change, compared.change_interval, stage.place / first.place
        around = Interval(1.0 + ends.lo, 1.0 + ends.hi) if ends else None
        per_step = Interval(around.lo / step, around.hi / step) if around else None
        grown.append(Growth(times, around, times / step, per_step))
    return grown


def find_stop(stages: Sequence[ScalingStage], *, seed: int, confidence: float = CONFIDENCE) -> Stop | None:
    """Return where a metric for which higher is better stops growing. None for fewer than three stages, or for values
    that aren't above zero.
    """
    ordered = sorted(stages, key=lambda stage: stage.place)
    means = [math.fsum(stage.values) / len(stage.values) for stage in ordered]
    if len(ordered) < 3 or min(means) <= 0.0 or ordered[0].place <= 0.0:
        return None
    plateau, reached = _level(ordered, means, SHARE)
    # maybe only by spread: then stages that cannot be distinguished from the last count as equally high
    if reached == len(ordered) - 1:
        plateau, reached = _level(ordered, means, _NEAR)
    top = sum(means[at] for at in plateau) / len(plateau)
    if reached == 0:
        return Stop("flat", top)
    if reached == len(ordered) - 1:
        p = p_value(ordered[-2].values, ordered[-1].values)
        return Stop("grows" if p is None or p <= 0.05 else "unclear", top)
    samples = [(stage.values,) for stage in ordered]
    early, late = (way(ordered, plateau, reached) for way in (_steeply_on, _straight_on))
    middle = [estimate(place, samples).value for place in (early, late)]
    low, high, known = _ends(ordered, plateau, reached, confidence, seed)
    return Stop(
        "stops",
        top,
        at=math.exp((middle[0] + middle[1]) / 2.0),
        between=(ordered[reached - 1].place, ordered[reached].place),
        interval=Interval(math.exp(min(low, middle[0])), math.exp(max(high, middle[1]))),
        spread_known=known,
    )


def _ends(
    ordered: Sequence[ScalingStage], plateau: Sequence[int], reached: int, confidence: float, seed: int
) -> tuple[float, float, bool]:
    """Return the logs of both ends, and whether they include the spread over trials.

    Which stage is the first to reach the share is uncertain, too: the ends go from the first that may reach it to the
    first that surely does.
    """
    samples = [(stage.values,) for stage in ordered]

    def around(place: Place) -> tuple[float, float, bool]:
        number = estimate(place, samples)
        ends = interval(number, confidence=confidence, seed=seed)[0]
        return (ends.lo, ends.hi, True) if ends else (number.value, number.value, False)

    margins = [around(_margin(plateau, at)) for at in range(len(ordered))]
    may = next(at for at in range(reached + 1) if margins[at][1] >= 0.0 or at == reached)
    sure = next((at for at in range(reached, len(ordered)) if margins[at][0] >= 0.0), len(ordered) - 1)
    low, _, low_known = around(_steeply_on(ordered, plateau, may)) if may else (math.log(ordered[0].place), 0.0, True)
    _, high, high_known = around(_straight_on(ordered, plateau, reached))
    return low, max(high, math.log(ordered[sure].place)) if sure > reached else high, low_known and high_known


def _log_share(means: Sequence[float], plateau: Sequence[int]) -> float:
    return math.log(SHARE * sum(means[at] for at in plateau) / len(plateau))


def _margin(plateau: Sequence[int], at: int) -> Place:
    """Return the function for the log distance of a stage above the share of the highest level."""

    def margin(means: Sequence[float]) -> float:
        return math.log(means[at]) - _log_share(means, plateau)

    return margin


def _level(ordered: Sequence[ScalingStage], means: Sequence[float], near: float) -> tuple[list[int], int]:
    """Return the stages that form the highest level, and the first that has SHARE of it.

    These are the best stage and adjacent ones that are near it and cannot be distinguished from it.
    """
    best = max(range(len(means)), key=means.__getitem__)

    def like_the_best(at: int) -> bool:
        p = p_value(ordered[best].values, ordered[at].values)
        return means[at] >= (SHARE if p is None else near) * means[best] and (p is None or p > 0.05)

    first = last = best
    while first > 0 and like_the_best(first - 1):
        first -= 1
    while last < len(means) - 1 and like_the_best(last + 1):
        last += 1
    plateau = list(range(first, last + 1))
    top = sum(means[at] for at in plateau) / len(plateau)
    return plateau, next(at for at, mean in enumerate(means) if mean >= SHARE * top)


def _straight_on(ordered: Sequence[ScalingStage], plateau: Sequence[int], reached: int) -> Place:
    """Return the function for the log of the place where a straight line to the `reached` stage meets the
    wanted share.
    """
    left, right = (math.log(ordered[at].place) for at in (reached - 1, reached))

    def place(means: Sequence[float]) -> float:
        wanted = _log_share(means, plateau)
        low, high = math.log(means[reached - 1]), math.log(means[reached])
        return left + (right - left) * min(1.0, (wanted - low) / (high - low))

    return place


def _steeply_on(ordered: Sequence[ScalingStage], plateau: Sequence[int], reached: int) -> Place:
    """Return the same function, continuing with the slope before the `reached` stage, which is at least as steep."""
    left, right = (math.log(ordered[at].place) for at in (reached - 1, reached))

    def place(means: Sequence[float]) -> float:
        wanted = _log_share(means, plateau)
        low, slope = math.log(means[reached - 1]), _STEEPEST
        if reached > 1:
            before = left - math.log(ordered[reached - 2].place)
            slope = min(slope, (low - math.log(means[reached - 2])) / before)
        ahead = (math.log(means[reached]) - low) / (right - left)
        return left + (wanted - low) / max(slope, ahead)

    return place
