"""Compare two sides with alternating trials, repetition by repetition, so that drift affects both alike."""

import math
from collections.abc import Sequence

from benchhouse.analysis.compare import (
    CONFIDENCE,
    Direction,
    Interval,
    StatisticComparison,
    cliffs_delta,
    verdict_of,
)
from benchhouse.analysis.interval_checks import doubt
from benchhouse.analysis.student import LARGEST_LOG, critical_t, two_sided_p
from benchhouse.analysis.summary import finite, mean, variance

FEWEST = 3
METHOD = "paired t"


def compare_paired(
    a: Sequence[float], b: Sequence[float], *, direction: Direction, confidence: float = CONFIDENCE
) -> StatisticComparison:
    """Compare B with A, `a[i]` and `b[i]` being from the same round; on logarithms if all values are positive.

    The relative change is then that of the geometric means. Raise ValueError for sides of different length, or with
    fewer than FEWEST values.
    """
    a, b = finite(a), finite(b)
    if len(a) != len(b) or len(a) < FEWEST:
        raise ValueError(f"pairs need equally many values, {FEWEST} or more, found {len(a)} and {len(b)}")
    mean_a, mean_b = mean(a), mean(b)
    logs = min(*a, *b) > 0.0
    differences = [y - x for x, y in zip(a, b, strict=True)]
    steps = [math.log(y / x) for x, y in zip(a, b, strict=True)] if logs else differences
    absolute, decided = _interval(differences, confidence), _interval(steps, confidence)
    centre = mean(steps)
    error = math.sqrt(variance(steps, centre) / len(steps))
    p = two_sided_p(centre / error, len(steps) - 1) if error else 1.0 if centre == 0.0 else 0.0
    change = math.expm1(centre) if logs else (mean_b - mean_a) / abs(mean_a) if mean_a else None
    shown = Interval(math.expm1(decided.lo), math.expm1(min(decided.hi, LARGEST_LOG))) if logs else None
    return StatisticComparison(
        n_a=len(a),
        n_b=len(b),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=mean_b - mean_a,
        difference_interval=absolute,
        change=change,
        change_interval=shown,
        confidence=confidence,
        method=f"{METHOD}, {len(a)} rounds",
        hedges_g=centre / (error * math.sqrt(len(steps))) if error else None,
        cliffs_delta=cliffs_delta(sorted(a), sorted(b)),
        p_value=p,
        p_method="paired t test",
        direction=direction,
        verdict=verdict_of(0.0, centre, decided, direction),
        doubt=doubt(steps),
    )


def _interval(steps: Sequence[float], confidence: float) -> Interval:
    centre = mean(steps)
    reach = critical_t(confidence, len(steps) - 1) * math.sqrt(variance(steps, centre) / len(steps))
    return Interval(centre - reach, centre + reach)
