"""Summarize one sample, and find the percentiles that have too few values behind them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram

QUANTILE = "hyndman-fan-7"
"""How percentiles are computed: linear interpolation between order statistics, the default of numpy and R."""

HISTOGRAM_QUANTILE = f"histogram, relative error at most {RELATIVE_ERROR * 100:.1g}%"
"""How percentiles of a histogram are computed: like QUANTILE, from values known to this relative error."""

NANOSECONDS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}
"""Nanoseconds in one of each unit that a histogram of nanoseconds can be reported in."""

_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
_WATCHED = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one sample, all in the unit of the values except `n` and `cv`."""

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
        """Return the statistics by the names that measurements use, without the standard deviation of a single
        value.
        """
        stats = {
            "mean": self.mean, "stdev": self.stdev, "min": self.min, "p50": self.p50, "p90": self.p90,
            "p95": self.p95, "p99": self.p99, "p99.9": self.p99_9, "max": self.max,
        }  # fmt: skip
        return {stat: value for stat, value in stats.items() if value is not None}


def summarise(values: Sequence[float]) -> Summary:
    """Summarize a sample. Raise ValueError for no values, and for NaN or infinity."""
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
    """Summarize a histogram of nanoseconds in `unit`, one of NANOSECONDS. Raise ValueError if it is empty.

    Percentiles are within RELATIVE_ERROR of those of the values; the other statistics are exact.
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
    """Return the `q` quantile (0 to 1) of values that are already sorted ascending."""
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, found {q}")
    position = (len(ordered) - 1) * q
    below = math.floor(position)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low if low == high else low + (high - low) * (position - below)


def enough_for(quantile: float, n: int) -> bool:
    """Whether at least one of `n` values is expected beyond `quantile`: p99 needs 100, p99.9 needs 1,000.

    This is the bare minimum for the number to mean anything: with fewer, the percentile is the maximum under another
    name. A stable percentile needs about ten times more.
    """
    # The tolerance absorbs binary rounding: 1 - 0.9 is slightly less than a tenth.
    return n * (1.0 - quantile) >= 1.0 - 1e-9


def shaky_quantiles(n: int) -> list[str]:
    """Return those of p90, p95, p99, and p99.9 that have too few values at `n`."""
    return [name for name, q in _WATCHED.items() if not enough_for(q, n)]


def finite(values: Sequence[float]) -> list[float]:
    """Return the values as floats. Raise ValueError if one of them is NaN or infinite."""
    floats = list(map(float, values))
    if not all(map(math.isfinite, floats)):
        place, value = next((place, value) for place, value in enumerate(floats) if not math.isfinite(value))
        raise ValueError(f"expected finite values, found {value} at position {place}")
    return floats


def mean(values: Sequence[float]) -> float:
    """Return the mean, independent of order; for a constant sample, exactly its value in spite of rounding."""
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def variance(values: Sequence[float], centre: float) -> float:
    """Return the sample variance (n-1) around a known mean; requires at least two values."""
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
