"""A histogram of non-negative integers that merges exactly and states the error of its quantiles.

Buckets are log-linear: 1,024 of equal width between consecutive powers of two, so small values are exact, and memory
grows with the spread of the values, not with their number.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import index, mul
from typing import Any, NoReturn

_BITS = 10  # bits after a value's leading one that select its bucket
_STEP = 1 << _BITS
_SCHEME = f"log-linear-{_BITS}"
_NAMES = {"scheme", "n", "min", "max", "total", "squares", "buckets", "counts"}
_EXACT_FLOAT = 1 << 53  # integers below it are exact as floats

RELATIVE_ERROR = 2.0 ** -(_BITS + 1)
"""The largest relative error of a quantile: half a bucket's width divided by its lower edge."""
LARGEST = 1 << 62
"""The largest value that can be added."""


class PreparedValues:
    """Values with their buckets and sums, computed once for several histograms."""

    __slots__ = ("buckets", "high", "low", "n", "squares", "total")

    def __init__(self, values: Iterable[int]) -> None:
        """Raise ValueError if a value is out of range."""
        try:
            numbers = array("q", values)
        except OverflowError:
            raise ValueError(f"a histogram takes values from 0 to {LARGEST}, found one beyond 64 bits") from None
        ints = numbers.tolist()  # plain integers, whatever the input type
        self.low, self.high = (min(ints), max(ints)) if ints else (0, 0)
        if self.low < 0 or self.high > LARGEST:
            raise _out_of_range(self.low if self.low < 0 else self.high)
        if self.high < _EXACT_FLOAT:
            # The leading bits of a float are its exponent and the start of its mantissa, which are the bucket.
            shift = 52 - _BITS
            buckets = [bits >> shift for bits in memoryview(array("d", ints)).cast("B").cast("q")]
        else:
            buckets = [_bucket(value) for value in ints]
        self.buckets: list[int] | dict[int, int] = buckets  # bucket of each value, or counts by bucket
        self.n = len(ints)
        self.total, self.squares = sum(ints), sum(map(mul, ints, ints))

    @classmethod
    def known(cls, n: int, low: int, high: int, total: int, squares: int, buckets: dict[int, int]) -> PreparedValues:
        """Return prepared values from known counts and sums."""
        made = cls.__new__(cls)
        made.n, made.low, made.high, made.total, made.squares, made.buckets = n, low, high, total, squares, buckets
        return made


class Histogram:
    """A histogram of integers from 0 to `LARGEST`, usually nanoseconds.

    `n`, `min`, `max`, `mean` and `stdev` are exact. Merging only adds integers, so the order and grouping of merges do
    not matter: the merged histogram of the parts is the histogram of the whole.
    """

    __slots__ = ("_counts", "_squares", "_total", "max", "min", "n")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.n = 0
        self.min: int | None = None
        self.max: int | None = None
        self._total = self._squares = 0
        self._counts: Counter[int] = Counter()
        self.extend(values)

    @property
    def mean(self) -> float | None:
        return self._total / self.n if self.n else None

    @property
    def stdev(self) -> float | None:
        """The sample standard deviation (n-1 in the denominator); None for fewer than two values."""
        if self.n < 2:
            return None
        return math.sqrt((self.n * self._squares - self._total**2) / (self.n * (self.n - 1)))

    def add(self, value: int, count: int = 1) -> None:
        """Add a value `count` times. For a value out of range or a count below one, raise ValueError and change
        nothing.
        """
        value = index(value)
        if not 0 <= value <= LARGEST:
            raise _out_of_range(value)
        if count < 1:
            raise ValueError(f"a count is at least 1, found {count}")
        self._counts[_bucket(value)] += count
        self._take(count, value, value, value * count, value * value * count)

    def extend(self, values: Iterable[int]) -> None:
        """Add many values at once, several times faster than one by one. After a ValueError, none is added."""
        self.count(PreparedValues(values))

    def count(self, values: PreparedValues) -> None:
        """Add values that other histograms count too."""
        if values.n:
            self._counts.update(values.buckets)
            self._take(values.n, values.low, values.high, values.total, values.squares)

    def merge(self, other: Histogram) -> None:
        """Add all values of `other`, which is not changed."""
        if other.min is None or other.max is None:
            return
        self._counts.update(other._counts)
        self._take(other.n, other.min, other.max, other._total, other._squares)

    def quantile(self, q: float) -> float:
        """Return the `q` quantile (0 to 1), interpolated between order statistics (Hyndman and Fan's type 7).

        It is within `RELATIVE_ERROR` of the exact quantile; 0 and 1 give `min` and `max`.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile lies between 0 and 1, found {q}")
        if not self.n:
            raise ValueError("a quantile needs at least one value, found none")
        position = (self.n - 1) * q
        below = math.floor(position)
        buckets = sorted(self._counts)
        reached = list(accumulate(self._counts[bucket] for bucket in buckets))
        low, high = (self._near(rank, buckets, reached) for rank in (below, min(below + 1, self.n - 1)))
        return low if low == high else low + (high - low) * (position - below)

    def to_json(self) -> dict[str, Any]:
        """Return the content as JSON values, the same for equal histograms.

        A bucket is written as the difference to the previous one. The two sums are strings, because they exceed the 64
        bits that many JSON readers support.
        """
        buckets = sorted(self._counts)
        return {
            "scheme": _SCHEME,
            "n": self.n,
            "min": self.min,
            "max": self.max,
            "total": str(self._total),
            "squares": str(self._squares),
            "buckets": [here - before for before, here in zip([0, *buckets], buckets, strict=False)],
            "counts": [self._counts[bucket] for bucket in buckets],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Histogram:
        """Return the histogram of `content`; raise ValueError for content that `to_json` cannot have written."""
        _check_form(content)
        made = cls()
        made._counts = Counter(dict(zip(accumulate(content["buckets"]), content["counts"], strict=True)))
        _check_sums(content, made._counts)
        made.n, made.min, made.max = content["n"], content["min"], content["max"]
        made._total, made._squares = int(content["total"]), int(content["squares"])
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Histogram(n={self.n}, min={self.min}, mean={self.mean}, max={self.max})"

    def _take(self, n: int, low: int, high: int, total: int, squares: int) -> None:
        self.n += n
        self._total += total
        self._squares += squares
        if self.min is None or low < self.min:
            self.min = low
        if self.max is None or high > self.max:
            self.max = high

    def _near(self, rank: int, buckets: list[int], reached: list[int]) -> float:
        """Return an order statistic, counted from 0: the middle of its bucket, limited to `min` and `max`."""
        assert self.min is not None and self.max is not None
        if rank == 0:
            return float(self.min)
        if rank == self.n - 1:
            return float(self.max)
        lower, upper = _edges(buckets[bisect_right(reached, rank)])
        return min(max((lower + upper) / 2, self.min), self.max)


def _bucket(value: int) -> int:
    """Return the leading bits of `value` as a float: exponent and `_BITS` bits of mantissa, rounded down."""
    if value == 0:
        return 0
    length = value.bit_length()
    return ((length + 1021) << _BITS) + ((value << (_BITS + 1)) >> length)


def _edges(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest value of a bucket."""
    if bucket == 0:
        return 0, 0
    length = (bucket >> _BITS) - 1022
    lower = ((_STEP + bucket % _STEP) << length) >> (_BITS + 1)
    return lower, lower + (1 << max(0, length - _BITS - 1)) - 1


def _out_of_range(value: int) -> ValueError:
    return ValueError(f"a histogram takes values from 0 to {LARGEST}, found {value}")


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"not a histogram: {what}")


def _check_form(content: Mapping[str, Any]) -> None:
    """Check names and types in a histogram's JSON; `_check_sums` checks that the numbers agree."""
    if not isinstance(content, Mapping) or set(content) != _NAMES:
        _refuse(f"expected an object with exactly {', '.join(sorted(_NAMES))}")
    if content["scheme"] != _SCHEME:
        _refuse(f"expected the scheme {_SCHEME}, found {content['scheme']!r}")
    for name in ("n", "min", "max"):
        wanted = type(None) if name != "n" and content["n"] == 0 else int
        if type(content[name]) is not wanted:
            _refuse(f"{name} should be {'null' if wanted is not int else 'an integer'}, found {content[name]!r}")
    for name in ("total", "squares"):
        text = content[name]
        if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 100):
            _refuse(f"{name} is no string of digits: {text!r}")
    for name in ("buckets", "counts"):
        numbers = content[name]
        if not isinstance(numbers, list) or any(type(number) is not int or number < 0 for number in numbers):
            _refuse(f"{name} is no list of integers from 0")
    if len(content["buckets"]) != len(content["counts"]):
        _refuse(f"{len(content['buckets'])} buckets have {len(content['counts'])} counts")


def _check_sums(content: Mapping[str, Any], counts: Mapping[int, int]) -> None:
    """Raise ValueError if no set of values can have produced these numbers."""
    edges = []
    for bucket in counts:
        good = not bucket or _bucket(1) <= bucket <= _bucket(LARGEST)
        if not good or _bucket(_edges(bucket)[0]) != bucket:
            _refuse(f"no value belongs to bucket {bucket}")
        edges.append(_edges(bucket))
    numbers = list(counts.values())
    if len(numbers) != len(content["counts"]) or 0 in numbers or sum(numbers) != content["n"]:
        _refuse(f"n is {content['n']}, but the counts of distinct buckets add up to {sum(numbers)}")
    for name, (lower, upper) in zip(("min", "max"), edges and (edges[0], edges[-1]), strict=False):
        if not lower <= content[name] <= min(upper, LARGEST):
            _refuse(f"{name} is {content[name]}, outside its bucket from {lower} to {upper}")
    if content["n"] and content["min"] > content["max"]:
        _refuse(f"min is {content['min']}, above max, which is {content['max']}")
    for name, power in (("total", 1), ("squares", 2)):
        least = sum(count * lower**power for count, (lower, _) in zip(numbers, edges, strict=True))
        most = sum(count * upper**power for count, (_, upper) in zip(numbers, edges, strict=True))
        if not least <= int(content[name]) <= most:
            _refuse(f"{name} is {content[name]}, but the buckets allow only {least} to {most}")
    if int(content["total"]) ** 2 > content["n"] * int(content["squares"]):
        _refuse("the sum of squares is too small for the total")
