"""Summarise one sample, and say which of its percentiles have too few values behind them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram

QUANTILE = "hyndman-fan-7"
"""How percentiles are read: linear interpolation between order statistics, numpy's and R's default."""

HISTOGRAM_QUANTILE = f"histogram, relative error at most {RELATIVE_ERROR * 100:.1g}%"
"""How percentiles of a histogram are read: as above, of values that are known to this share of themselves."""

NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}
"""In one of each unit that a histogram of nanoseconds can be told in."""

_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
_WATCHED = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Summary:
    """One sample in numbers, all in the unit of the values except `n` and `cv`."""

    n: int
    mean: float
    stdev: float | None  # sample standard deviation (n-1 in the denominator); None for one value
    cv: float | None  # stdev / |mean|; None for one value or a mean of zero
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    max: float

    def stats(self) -> dict[str, float]:
        """The numbers by the names that measurements have; a deviation of one value is left out."""
        stats = {
            "mean": self.mean, "stdev": self.stdev, "min": self.min, "p50": self.p50, "p90": self.p90,
            "p95": self.p95, "p99": self.p99, "p99.9": self.p99_9, "max": self.max,
        }  # fmt: skip
        return {stat: value for stat, value in stats.items() if value is not None}


def summarise(values: Sequence[float]) -> Summary:
    """Raises ValueError for no values, and for NaN or infinity."""
    ordered = sorted(finite(values))
    if not ordered:
        raise ValueError("a summary needs at least one value, found none")
    centre = mean(ordered)
    stdev = math.sqrt(variance(ordered, centre)) if len(ordered) > 1 else None
    return Summary(
        n=len(ordered),
        mean=centre,
        stdev=stdev,
        cv=stdev / abs(centre) if stdev is not None and centre else None,
        min=ordered[0],
        max=ordered[-1],
        **{name: quantile(ordered, q) for name, q in _QUANTILES.items()},
    )


def summarise_histogram(nanoseconds: Histogram, unit: str) -> Summary:
    """A histogram of nanoseconds in `unit`, one of NANOSECONDS; raises ValueError for an empty one.

    Percentiles are within RELATIVE_ERROR of those of the values, everything else is exact.
    """
    centre, low, high = nanoseconds.mean, nanoseconds.min, nanoseconds.max
    if centre is None or low is None or high is None:
        raise ValueError("a summary needs at least one value, found an empty histogram")
    scale, spread = NANOSECONDS[unit], nanoseconds.stdev
    return Summary(
        n=nanoseconds.n,
        mean=centre / scale,
        stdev=spread / scale if spread is not None else None,
        cv=spread / centre if spread is not None and centre else None,
        min=low / scale,
        max=high / scale,
        **{name: nanoseconds.quantile(q) / scale for name, q in _QUANTILES.items()},
    )


def quantile(ordered: Sequence[float], q: float) -> float:
    """The `q` quantile (0 to 1) of values that are already sorted ascending."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, found {q}")
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if low == high else low + (high - low) * (position - below)


def enough_for(quantile: float, n: int) -> bool:
    """Whether at least one of `n` values is expected beyond `quantile`: p99 needs 100, p99.9 needs 1,000.

    This is the bare minimum for the number to mean anything: with fewer, the percentile is the maximum
    under another name. A stable percentile wants about ten times as many.
    """
    # The slack absorbs binary rounding: 1 - 0.9 is a little less than a tenth.
    return n * (1.0 - quantile) >= 1.0 - 1e-9


def shaky_quantiles(n: int) -> list[str]:
    """Those of p90, p95, p99 and p99.9 that `n` values are too few for."""
    return [name for name, q in _WATCHED.items() if not enough_for(q, n)]


def finite(values: Sequence[float]) -> list[float]:
    """The values as floats; raises ValueError when one of them is NaN or infinite."""
    floats = list(map(float, values))
    if not all(map(math.isfinite, floats)):
        place, value = next((place, value) for place, value in enumerate(floats) if not math.isfinite(value))
        raise ValueError(f"expected finite values, found {value} at position {place}")
    return floats


def mean(values: Sequence[float]) -> float:
    """The mean, in any order; exactly the common value of a constant sample, whatever the rounding."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def variance(values: Sequence[float], centre: float) -> float:
    """Sample variance (n-1) around a mean already known; needs two values or more."""
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
