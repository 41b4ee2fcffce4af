"""Streams of measured times: they are collected into histograms, along with how far off each time can be."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchhouse.load.answers import measured, sides
from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram, PreparedValues

_AT_A_TIME = 512
FINE_NS = 150_000
"""Uncertainty of every time that is not examined: handing a request to the kernel, and comparing two clocks."""
WAKING_NS = 100_000
"""Time that a core takes to wake, by which every blocking call can be off."""
FINEST_NS = 1_000
"""Uncertainty that is ignored when calls of microseconds are timed."""
_BEYOND = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class ValueStream:
    """Values on their way into a histogram: an array takes each at once, the histogram many at a time."""

    __slots__ = ("_between", "_doubts", "_histogram", "_values", "add")

    def __init__(
        self, histogram: Histogram | None = None, doubts: "Doubts | None" = None, between: bool = False
    ) -> None:
        self._histogram = histogram or Histogram()
        self._doubts = doubts
        self._between = between  # a time between two moments, each of which may be late: lateness may add or subtract
        self._values = array("q")
        self.add = self._values.append

    def add_unsure(self, value: int, earlier: int, later: int | None = None) -> None:
        """Add a time whose true value may be less by `earlier`, or, if it lies between two measured moments, more by
        `later`."""
        self._between = self._between or later is not None
        if earlier > FINE_NS or (later or 0) > FINE_NS:
            self._doubts = self._doubts or Doubts()
            self._doubts.add(value, earlier, later or 0)
        else:
            self.add(value)

    def extend(self, values: Iterable[int]) -> None:
        self._values.extend(values)

    def extend_unsure(self, values: Sequence[int], earlier: Sequence[int], later: Sequence[int] = ()) -> None:
        """Do the same as `add_unsure` for each value; an empty `earlier` or `later` means zero for all."""
        self._between = self._between or bool(later)
        if max(earlier, default=0) <= FINE_NS and max(later, default=0) <= FINE_NS:
            self._values.extend(values)
            return
        less = earlier or [0] * len(values)
        sure, *doubtful = sides(array("q", values), array("q", less), array("q", later), FINE_NS)
        self._values.extend(sure)
        self._doubts = self._doubts or Doubts()
        self._doubts.extend(doubtful)

    def count(self, values: PreparedValues) -> None:
        """Add values that also go into other streams."""
        self._histogram.count(values)

    def repeat(self, value: int, count: int) -> None:
        """Add one value `count` times."""
        self._histogram.add(value, count)

    @property
    def histogram(self) -> Histogram:
        """All values added so far."""
        return self._doubts.with_measured(self._sure()) if self._doubts else self._sure()

    def _sure(self) -> Histogram:
        """Return the histogram of all values without doubts."""
        self._histogram.count(measured(self._values))
        del self._values[:]
        return self._histogram

    def bounds_ns(self, waits: "Waits | None" = None) -> dict[str, float]:
        """Return how far off the mean and percentiles can be; `waits` may be in the times in addition to their own
        doubts."""
        doubts = self._doubts or Doubts()
        return doubts.bounds_ns(self._sure(), waits, self._between) if self.histogram.n else {}

    def settle_some(self) -> bool:
        """Move the oldest values into the histogram, in about 0.1 ms. Return whether any are left."""
        self._histogram.count(measured(self._values[:_AT_A_TIME]))
        del self._values[:_AT_A_TIME]
        doubts_left = self._doubts.settle_some() if self._doubts else False
        return bool(self._values) or doubts_left

    def merge(self, other: "ValueStream") -> None:
        self._between = self._between or other._between
        self._sure().merge(other._sure())
        if other._doubts:
            self._doubts = self._doubts or Doubts()
            self._doubts.merge(other._doubts)

    def __reduce__(self) -> Any:
        return ValueStream, (self._sure(), self._doubts, self._between)


class Doubts:
    """The times of a stream that are only known to lie between two others."""

    def __init__(self) -> None:
        self._sides = ValueStream(), ValueStream(), ValueStream()  # as measured, the minimum, the maximum

    def add(self, value: int, earlier: int, later: int) -> None:
        measured, least, most = self._sides
        measured.add(value)
        least.add(max(value - earlier, 0))
        most.add(value + later)

    def extend(self, doubtful: Sequence["array[int]"]) -> None:
        """Add many values, given as their measured, minimum, and maximum times."""
        for side, values in zip(self._sides, doubtful, strict=True):
            side.extend(values)

    def merge(self, other: "Doubts") -> None:
        for ours, theirs in zip(self._sides, other._sides, strict=True):
            ours.merge(theirs)

    def settle_some(self) -> bool:
        return any(side.settle_some() for side in self._sides)  # the other sides follow in later calls

    def with_measured(self, sure: Histogram) -> Histogram:
        """Return all times of the stream; `sure` holds those without doubts."""
        return _together(sure, self._sides[0])

    def bounds_ns(self, sure: Histogram, waits: "Waits | None", between: bool) -> dict[str, float]:
        """Return how far off each figure can be: every percentile is lowest if all times are at their minimum, and
        highest if all are at their maximum."""
        measured, least, most = (_together(sure, side) for side in self._sides)
        low = waits.overlap_minimum(least) if waits else figures(least)
        high = waits.put_on(most) if waits and between else figures(most)
        fine = 0 if waits else FINE_NS
        return {
            stat: max(value - low[stat], high[stat] - value) + RELATIVE_ERROR * high[stat] + fine
            for stat, value in figures(measured).items()
        }


class SharedWaits:
    """Waits of times that were not examined one by one: for each group of times, only the sum of their waits is known.

    Of times that waited for t in total, at most k can have waited for more than t / k each. So t, t/2, t/3 ... are at
    least the number of long waits that can have occurred, for any length.
    """

    def __init__(self) -> None:
        self._most, self.total_ns = Histogram(), 0

    def add(self, total_ns: int, count: int) -> None:
        """Add a group of `count` times that waited for `total_ns` in total."""
        self.total_ns += total_ns
        self._most.extend([total_ns // number for number in range(1, min(count, total_ns // FINEST_NS) + 1)])

    def merge(self, other: "SharedWaits") -> None:
        self.total_ns += other.total_ns
        self._most.merge(other._most)

    def among(self, times: int) -> Histogram:
        """Return a histogram with at least the maximum number of long waits among all the times; the rest have none."""
        whole = Histogram()
        whole.merge(self._most)
        if times > whole.n:
            whole.add(0, times - whole.n)
        return whole


class Waits:
    """The waits that the times of blocking calls may include, in addition to their own doubts.

    Calls during which a thread did not run all the time are at most a share `broken` of them. They include `fine_ns`,
    which is not examined, and the sampled waits. Each of the `samples` was taken in a different way, and the worst
    counts. The `shared` waits of the times are added.
    """

    def __init__(
        self,
        samples: Iterable[Histogram],
        broken: float = 1.0,
        shared: SharedWaits | None = None,
        fine_ns: int = FINE_NS + WAKING_NS,
    ) -> None:
        self._samples = [sample for sample in samples if sample.n]
        self._broken, self._shared, self._fine_ns = broken, shared, fine_ns

    def overlap_minimum(self, times: Histogram) -> Mapping[str, float]:
        """Return the minimum of each figure.

        A share of `beyond` of all waits is longer than `most`. So if at least a share q of the times without their
        waits was below some value, at least q - beyond of the times were below that value plus `most`. This holds for
        any relation between waits and times, and for any share: the share that gives the tightest bound counts.
        """
        most, mean = self._most(times.n), self._mean(times.n)
        least = {"mean": max((times.mean or 0.0) - mean, 0.0)}
        for stat, q in _QUANTILES.items():
            least[stat] = max(0.0, *(times.quantile(q - beyond) - wait for beyond, wait in most.items() if beyond < q))
        return least

    def put_on(self, times: Histogram) -> Mapping[str, float]:
        """Return the maximum of each figure, if a wait may be missing from a time: the same bound in the other
        direction."""
        longest, mean = self._most(times.n), self._mean(times.n)
        most = {"mean": (times.mean or 0.0) + mean}
        for stat, q in _QUANTILES.items():
            most[stat] = min(times.quantile(q + beyond) + wait for beyond, wait in longest.items() if q + beyond <= 1)
        return most

    def _most(self, times: int) -> Mapping[float, float]:
        """Map shares of the times to the wait that at most this share has exceeded."""
        own = {beyond: self._own(beyond) for beyond in _BEYOND}
        if not self._shared:
            return own
        shared = self._shared.among(times)
        both = [(a + b, wait + shared.quantile(1 - b)) for a, wait in own.items() for b in _BEYOND]
        return {beyond: min(wait for share, wait in both if share <= beyond) for beyond in _BEYOND}

    def _own(self, beyond: float) -> float:
        if beyond >= self._broken:
            return 0.0
        share = 1 - beyond / self._broken
        return self._fine_ns + max((sample.quantile(share) for sample in self._samples), default=0.0)

    def _mean(self, times: int) -> float:
        own = self._fine_ns + max((sample.mean or 0.0 for sample in self._samples), default=0.0)
        return self._broken * own + (self._shared.total_ns / times if self._shared else 0.0)


def _together(sure: Histogram, side: ValueStream) -> Histogram:
    both = Histogram()
    both.merge(sure)
    both.merge(side.histogram)
    return both


def figures(times: Histogram) -> Mapping[str, float]:
    """Return the figures for which bounds are given."""
    return {"mean": times.mean or 0.0} | {stat: times.quantile(q) for stat, q in _QUANTILES.items()}
