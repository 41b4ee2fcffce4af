"""Streams of measured times: on their way into a histogram, and with how far each of them can be off."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchhouse.load.answers import measured, sides
from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram, Measured

_AT_A_TIME = 512
FINE_NS = 150_000
"""What every time can be off by, and is not looked into: handing a request to the kernel, and comparing two clocks."""
WAKING_NS = 100_000
"""What a core takes to wake, which every call that blocks can be off by."""
FINEST_NS = 1_000
"""What nobody looks at where calls of microseconds are timed."""
_BEYOND = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Stream:
    """Values on their way into a histogram: an array takes each at once, the histogram many at a time."""

    __slots__ = ("_doubts", "_histogram", "_values", "add")

    def __init__(self, histogram: Histogram | None = None, doubts: "Doubts | None" = None) -> None:
        self._histogram = histogram or Histogram()
        self._doubts = doubts
        self._values = array("q")
        self.add = self._values.append

    def add_unsure(self, value: int, earlier: int, later: int = 0) -> None:
        """A time that may in truth be less by `earlier`, or more by `later`."""
        if earlier > FINE_NS or later > FINE_NS:
            self._doubts = self._doubts or Doubts()
            self._doubts.add(value, earlier, later)
        else:
            self.add(value)

    def extend(self, values: Iterable[int]) -> None:
        self._values.extend(values)

    def extend_unsure(self, values: Sequence[int], earlier: Sequence[int], later: Sequence[int] = ()) -> None:
        """As `add_unsure` of each; where `earlier` is empty, or `later`, none is."""
        if max(earlier, default=0) <= FINE_NS and max(later, default=0) <= FINE_NS:
            self._values.extend(values)
            return
        less = earlier or [0] * len(values)
        sure, *doubtful = sides(array("q", values), array("q", less), array("q", later), FINE_NS)
        self._values.extend(sure)
        self._doubts = self._doubts or Doubts()
        self._doubts.extend(doubtful)

    def count(self, values: Measured) -> None:
        """Values that go into other streams too."""
        self._histogram.count(values)

    def repeat(self, value: int, count: int) -> None:
        """One value, so many times."""
        self._histogram.add(value, count)

    @property
    def histogram(self) -> Histogram:
        """All that was added so far."""
        return self._doubts.with_measured(self._sure()) if self._doubts else self._sure()

    def _sure(self) -> Histogram:
        """Of that, all but the doubts."""
        self._histogram.count(measured(self._values))
        del self._values[:]
        return self._histogram

    def bounds_ns(
        self, waits: Sequence[Histogram] = (), shared: "SharedWaits | None" = None, fine_ns: int | None = None
    ) -> dict[str, float]:
        """How far the mean and the percentiles can be off. `waits` are samples of what may be in any of the times
        beside their own doubts, each taken in another way: the worst of these counts. What times have `shared` comes on
        top. `fine_ns` is what no time was looked at for."""
        doubts, waits = self._doubts or Doubts(), [sample for sample in waits if sample.n]
        fine_ns = (FINE_NS + WAKING_NS if waits else FINE_NS) if fine_ns is None else fine_ns
        return doubts.bounds_ns(self._sure(), waits, shared, fine_ns) if self.histogram.n else {}

    def settle_some(self) -> bool:
        """Move the oldest values into the histogram, in about a tenth of a millisecond; whether any are left."""
        self._histogram.count(measured(self._values[:_AT_A_TIME]))
        del self._values[:_AT_A_TIME]
        doubts_left = self._doubts.settle_some() if self._doubts else False
        return bool(self._values) or doubts_left

    def merge(self, other: "Stream") -> None:
        self._sure().merge(other._sure())
        if other._doubts:
            self._doubts = self._doubts or Doubts()
            self._doubts.merge(other._doubts)

    def __reduce__(self) -> Any:
        return Stream, (self._sure(), self._doubts)


class Doubts:
    """Of a stream, the times that are only known to lie between two others."""

    def __init__(self) -> None:
        self._sides = Stream(), Stream(), Stream()  # as measured, the least that it can be, the most

    def add(self, value: int, earlier: int, later: int) -> None:
        measured, least, most = self._sides
        measured.add(value)
        least.add(max(value - earlier, 0))
        most.add(value + later)

    def extend(self, doubtful: Sequence["array[int]"]) -> None:
        """Many, by their sides."""
        for side, values in zip(self._sides, doubtful, strict=True):
            side.extend(values)

    def merge(self, other: "Doubts") -> None:
        for ours, theirs in zip(self._sides, other._sides, strict=True):
            ours.merge(theirs)

    def settle_some(self) -> bool:
        return any(side.settle_some() for side in self._sides)  # the others have their turn later

    def with_measured(self, sure: Histogram) -> Histogram:
        """All times of the stream, of which `sure` holds the others."""
        return _together(sure, self._sides[0])

    def bounds_ns(
        self, sure: Histogram, waits: Sequence[Histogram], shared: "SharedWaits | None", fine_ns: int
    ) -> dict[str, float]:
        """Where each is the least that it can be, so is every percentile; and where it is the most."""
        least = _together(sure, self._sides[1])
        measured, high = (figures(_together(sure, self._sides[side])) for side in (0, 2))
        low = _less(least, waits, shared) if waits or shared else figures(least)
        return {
            stat: max(value - low[stat], high[stat] - value) + RELATIVE_ERROR * high[stat] + fine_ns
            for stat, value in measured.items()
        }


class SharedWaits:
    """Waits of times that were not looked at one by one: of each group of times their sum is known.

    Of times that waited for t together, at most k can have waited for more than t / k each. So t, t/2, t/3 ... are at
    least as many long waits as there can have been, however long that is.
    """

    def __init__(self) -> None:
        self._most, self.total_ns = Histogram(), 0

    def add(self, total_ns: int, count: int) -> None:
        """So many times waited for so long together."""
        self.total_ns += total_ns
        self._most.extend([total_ns // number for number in range(1, min(count, total_ns // FINEST_NS) + 1)])

    def merge(self, other: "SharedWaits") -> None:
        self.total_ns += other.total_ns
        self._most.merge(other._most)

    def among(self, times: int) -> Histogram:
        """At least as many long waits as there can be among all the times, of which the others have none."""
        whole = Histogram()
        whole.merge(self._most)
        if times > whole.n:
            whole.add(0, times - whole.n)
        return whole


def _less(times: Histogram, waits: Sequence[Histogram], shared: SharedWaits | None) -> Mapping[str, float]:
    """The least that the figures can be where any of the times may hold a wait, of which samples are known.

    Of all waits a share of `beyond` is longer than `most`. So if at least a share q of the times without their waits
    were below some value, at least q - beyond of the times were below that value plus `most`. This holds whatever
    waits and times have to do with each other, and for any share: the one that tells most counts.
    """
    most = _longest(waits)
    mean = max((sample.mean or 0.0 for sample in waits), default=0.0)
    if shared:
        most = _sums(most, _longest([shared.among(times.n)]))
        mean += shared.total_ns / times.n
    least = {"mean": max((times.mean or 0.0) - mean, 0.0)}
    for stat, q in _QUANTILES.items():
        least[stat] = max(0.0, *(times.quantile(q - beyond) - wait for beyond, wait in most.items() if beyond < q))
    return least


def _longest(waits: Sequence[Histogram]) -> Mapping[float, float]:
    """By share, what so many of the waits are longer than at most."""
    return {beyond: max((sample.quantile(1 - beyond) for sample in waits), default=0.0) for beyond in _BEYOND}


def _sums(some: Mapping[float, float], others: Mapping[float, float]) -> Mapping[float, float]:
    """The same of waits of two kinds together: those that are long by one of them or by the other."""
    both = [(a + b, wait + other) for a, wait in some.items() for b, other in others.items()]
    return {beyond: min(wait for share, wait in both if share <= beyond) for beyond in _BEYOND}


def _together(sure: Histogram, side: Stream) -> Histogram:
    both = Histogram()
    both.merge(sure)
    both.merge(side.histogram)
    return both


def figures(times: Histogram) -> Mapping[str, float]:
    """The figures that a bound is given for."""
    return {"mean": times.mean or 0.0} | {stat: times.quantile(q) for stat, q in _QUANTILES.items()}
