"""One series in one part of a trial's time, in figures."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import isnan, nan

from benchhouse.analysis.summary import mean, quantile, shaky_quantiles
from benchhouse.schema.telemetry import STEADY, TEARDOWN, WARMUP, WHOLE, Phase, Stats

_TOLD = ("p95", "p99")
_LEAST = 0.5  # of the interval: over less, a counter of clock ticks gives no rate


def all_phases(told: Iterable[Phase], duration_s: float) -> list[Phase]:
    """The whole, what was told (cut to the trial's time), and around `steady` what came before and after."""
    kept = []
    for phase in told:
        begin_s, end_s = max(0.0, phase.begin_s), min(duration_s, phase.end_s)
        if begin_s < end_s:
            kept.append(Phase(name=phase.name, begin_s=begin_s, end_s=end_s))
    found = [Phase(name=WHOLE, begin_s=0.0, end_s=duration_s)]
    steady = [phase for phase in kept if phase.name == STEADY]
    if steady:
        first, last = min(phase.begin_s for phase in steady), max(phase.end_s for phase in steady)
        if first > 0 and not any(phase.name == WARMUP for phase in kept):
            found.append(Phase(name=WARMUP, begin_s=0.0, end_s=first))
        if last < duration_s and not any(phase.name == TEARDOWN for phase in kept):
            kept.append(Phase(name=TEARDOWN, begin_s=last, end_s=duration_s))
    return found + sorted(kept, key=lambda phase: phase.begin_s)


def gauge_stats(times: Sequence[float], values: Sequence[float], parts: Sequence[Phase]) -> Stats | None:
    """Of the values that were seen in these parts of the time, None where none was."""
    seen: list[float] = []
    for part in parts:
        seen += values[bisect_left(times, part.begin_s) : bisect_right(times, part.end_s)]
    if isnan(sum(seen)):
        seen = [value for value in seen if not isnan(value)]
    seen.sort()
    return _stats(seen, mean(seen)) if seen else None


def counter_stats(
    times: Sequence[float], values: Sequence[float], parts: Sequence[Phase], interval_s: float
) -> Stats | None:
    """Of the growth a second. The mean is over the parts themselves, the rest over the intervals inside them.

    So the mean may lie beyond what these tell; the greatest is at least the mean, and the least at most.
    """
    if isnan(sum(values)):
        known = [at for at, value in enumerate(values) if not isnan(value)]
        times, values = [times[at] for at in known], [values[at] for at in known]
    if len(times) < 2:
        return None
    growth = length_s = 0.0
    rates: list[float] = []
    for part in parts:
        begin_s, end_s = max(part.begin_s, times[0]), min(part.end_s, times[-1])
        if end_s <= begin_s:
            continue
        growth += _at(times, values, end_s) - _at(times, values, begin_s)
        length_s += end_s - begin_s
        first, last = bisect_left(times, part.begin_s), bisect_right(times, part.end_s)
        rates += [
            (values[at] - values[at - 1]) / (times[at] - times[at - 1])
            for at in range(first + 1, last)
            if times[at] - times[at - 1] >= _LEAST * interval_s
        ]
    if not length_s:
        return None
    return _stats(sorted(rates), growth / length_s, growth)


def energy_j(times: Sequence[float], watts: Sequence[float], part: Phase) -> float:
    """Power over time, by trapezoids, its ends interpolated; NaN where fewer than two values are known."""
    known = [(time, value) for time, value in zip(times, watts, strict=True) if not isnan(value)]
    if len(known) < 2:
        return nan
    at, power = [time for time, _ in known], [value for _, value in known]
    begin_s, end_s = max(part.begin_s, at[0]), min(part.end_s, at[-1])
    if end_s <= begin_s:
        return nan
    inner = [one for one in known if begin_s < one[0] < end_s]
    points = [(begin_s, _at(at, power, begin_s)), *inner, (end_s, _at(at, power, end_s))]
    return sum((after[0] - before[0]) * (after[1] + before[1]) / 2 for before, after in pairwise(points))


def _at(times: Sequence[float], values: Sequence[float], when_s: float) -> float:
    """The value between two samples, linearly."""
    after = bisect_left(times, when_s)
    if after == 0 or times[after] == when_s:
        return values[after]
    share = (when_s - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def _stats(ordered: list[float], avg: float, growth: float | None = None) -> Stats:
    if not ordered:
        return Stats(n=0, avg=avg, growth=growth)
    n, low, high = len(ordered), ordered[0], ordered[-1]
    p50, p95, p99 = (low, low, low) if low == high else (quantile(ordered, share) for share in (0.50, 0.95, 0.99))
    return Stats(
        n=n, avg=avg, min=min(low, avg), max=max(high, avg), p50=p50, p95=p95, p99=p99,
        too_few_for=_too_few_for(n), growth=growth,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _too_few_for(n: int) -> list[str]:
    return [name for name in shaky_quantiles(n) if name in _TOLD]
