"""Whether the gaps between the sends of an open loop follow the law that was asked for."""

import math
from collections.abc import Sequence
from itertools import count, pairwise

from pydantic import Field

from benchhouse.load.arrivals import Kind, Trace
from benchhouse.schema.model import Model

_NS = 1_000_000_000
_KS_CRITICAL = 1.9495  # of Kolmogorov's law: exceeded by chance once in 1,000
_OFF_ALLOWED = 0.02  # of even gaps: one send in a hundred may be late, and spoils the gap before and the one after
_EVEN_PART, _RANDOM_PART = 0.5, 0.25  # of a mean gap: the most that is tolerated of even and of random gaps
_EVEN_LEAST = 0.05  # of a gap: what is always tolerated of even ones, for at low rates it's the lag that judges sends
_LOOKS = 4096  # at a distribution, at most: a distance is then understated by less than 1/4096

TOLERANCE_NS = 200_000
"""How far a gap may be off before it counts: what a send on a quiet machine is late by at worst."""


class Fit(Model):
    """Whether sent times have the gaps that were asked for."""

    statistic: float
    limit: float = Field(description="The largest statistic that passes.")
    passed: bool
    n: int = Field(description="Gaps looked at.")
    what: str = Field(description="What the statistic is, for people.")


def gaps_fit(
    arrivals: Kind,
    sent: Sequence[int],
    intended: Sequence[int],
    rate: float | None,
    duration_s: float | None = None,
    tolerance_ns: float = TOLERANCE_NS,
) -> Fit:
    """Test the gaps between sends of one unbroken stretch of the schedule, all in nanoseconds after its start.

    Random gaps: their distance to the law by Kolmogorov and Smirnov, beyond what `tolerance_ns` explains; an exact
    schedule fails about once in 1,000. Even gaps and traces: the share that is off by more than the tolerance.
    The tolerance is never more than a part of the mean gap, or any sends would do at high rates. Only gaps are looked
    at: sends that follow the law but not their own times show in the lag of the schedule.
    """
    if len(sent) != len(intended):
        raise ValueError(f"each send needs its intended time: {len(sent)} sent, {len(intended)} intended")
    ordered = sorted(sent)
    if len(ordered) < 2:
        return Fit(statistic=0.0, limit=1.0, passed=True, n=0, what="no gaps to look at")
    if isinstance(arrivals, Trace):
        wanted = _gaps(sorted(intended))
        mean = sum(wanted) / len(wanted)
        tolerance = min(_EVEN_PART * mean, max(_EVEN_LEAST * mean, tolerance_ns))
        return _even_fit([abs(gap - due) > tolerance for gap, due in zip(_gaps(ordered), wanted, strict=True)])
    expected = arrivals.course(rate, duration_s).expected
    reached = [expected(time / _NS) for time in ordered]
    # What the tolerance comes to in arrivals depends on the rate at the time.
    tolerances = [expected((time + tolerance_ns) / _NS) - before for time, before in zip(ordered, reached, strict=True)]
    if arrivals.gap_shape is None:
        pairs = zip(_gaps(reached), tolerances, strict=False)
        return _even_fit([abs(gap - 1) > min(_EVEN_PART, max(_EVEN_LEAST, each)) for gap, each in pairs])
    tolerance = min(_RANDOM_PART, sum(tolerances) / len(tolerances))
    return _random_fit(sorted(_gaps(reached)), arrivals.gap_shape, tolerance)


def _even_fit(off: Sequence[bool]) -> Fit:
    n = len(off)
    statistic = sum(off) / n
    # Three standard deviations of the share, so that a single late send doesn't fail a short run.
    limit = _OFF_ALLOWED + 3 * math.sqrt(_OFF_ALLOWED * (1 - _OFF_ALLOWED) / n)
    return _verdict(statistic, limit, n, "share of gaps that differ from the intended ones")


def _random_fit(gaps: Sequence[float], shape: float, tolerance: float) -> Fit:
    n = len(gaps)
    statistic = 0.0
    for look in range(min(n, _LOOKS)):
        rank = look * (n - 1) // max(1, min(n, _LOOKS) - 1)
        too_many_short = (rank + 1) / n - gamma_cdf(shape, gaps[rank] + tolerance)
        too_many_long = gamma_cdf(shape, gaps[rank] - tolerance) - rank / n
        statistic = max(statistic, too_many_short, too_many_long)
    limit = _KS_CRITICAL / (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))  # Stephens' form, good from five gaps on
    law = "exponential" if shape == 1 else f"gamma({shape:g})"
    return _verdict(statistic, limit, n, f"Kolmogorov-Smirnov distance of the gaps to the {law} law")


def _verdict(statistic: float, limit: float, n: int, what: str) -> Fit:
    return Fit(statistic=statistic, limit=limit, passed=statistic <= limit, n=n, what=what)


def gamma_cdf(shape: float, gap: float) -> float:
    """Share of gaps up to `gap` under the gamma law of mean one."""
    if gap <= 0:
        return 0.0
    if shape == 1:
        return -math.expm1(-gap)
    x = shape * gap
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for k in count(1):
            term *= x / (shape + k)
            total += term
            if term < total * 1e-12:
                return front * total
    # The continued fraction of the upper tail, by Lentz's method; it is quick where the series is slow.
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    tail = d
    for k in count(1):
        a = k * (shape - k)
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        tail *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return 1 - front * tail


def _gaps(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]
