"""Whether a window was one steady state: sums over time, and tests that natural variance passes.

Every test is built for a false alarm in one of a thousand clean trials (`ALPHA`), and keeps silent where the data can't
carry it. Simulated queues beyond 90% of their capacity, which wander for as long as a short window, gave up to eight.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import NamedTuple

from benchhouse.load.answers import bins

ALPHA = 0.001
_SILENCE_ALPHA = ALPHA / 10  # for tails somewhat heavier than exponential, as mixed lengths have
Z = 3.9  # of the normal law: ALPHA for two sides, two series, and the better of two shapes
MOST_BATCHES = 30
FEWEST_BATCHES = 6
_LEAST_IN_BATCH = 8  # the mean of so few exponential times is near enough to normal
_FEWEST_INDEPENDENT = 6.0
_FEWEST_RANKED = 10  # the order of fewer batches is too often a chance
_FEWEST_STEPS = 20
_STEPS_BACK = 1 / 7
_MOST_BINS = 1024
_TAIL = 10
_SILENCE_BIN_NS = 10_000_000
_MOST_SILENCE_BINS = 100_000  # then bins of twice the width


class LatencyBatch(NamedTuple):
    """Neighbouring requests, in the order in which they were due."""

    at_s: float
    ttft_ms: float
    e2e_ms: float


class LatencyHistory:
    """Latencies over the time of the window, in at most 1,024 bins: their width doubles when a load outgrows them."""

    def __init__(self) -> None:
        self._width_ns = 10_000_000
        self._bins: dict[int, list[int]] = {}  # requests, sum of ttft, sum of e2e

    def add(self, at_ns: int, ttft_ns: int, e2e_ns: int) -> None:
        while at_ns >= _MOST_BINS * self._width_ns:
            self._widen()
        row = self._bins.setdefault(at_ns // self._width_ns, [0, 0, 0])
        row[0] += 1
        row[1] += ttft_ns
        row[2] += e2e_ns

    def merge(self, other: "LatencyHistory") -> None:
        while self._width_ns < other._width_ns:
            self._widen()
        for place, theirs in other._bins.items():
            self._take(place * other._width_ns // self._width_ns, theirs)

    def batches(self, window_s: float, *, queued: bool) -> list[LatencyBatch]:
        """At most 30 of equally many requests, at least 8; none where there would be fewer than 6.

        In a closed loop each holds at least twice the requests that were in flight at a time: what one request waits
        for another then stays within a batch, and batches are independent. In an open loop (`queued`) no batch is
        long enough for that, and tests go by how alike neighbours are.
        """
        rows = [(place, *self._bins[place]) for place in sorted(self._bins)]
        total = sum(row[1] for row in rows)
        in_flight = sum(row[3] for row in rows) / 1e9 / window_s if window_s else 0.0
        size = max(total / MOST_BATCHES, 0 if queued else 2 * in_flight, _LEAST_IN_BATCH)
        batches: list[LatencyBatch] = []
        n = ttft = e2e = at = done = 0
        for place, count, ttft_ns, e2e_ns in rows:
            n, ttft, e2e, at = n + count, ttft + ttft_ns, e2e + e2e_ns, at + place * count
            if done + n >= size * (len(batches) + 1) - 0.5:
                batches.append(LatencyBatch((at / n + 0.5) * self._width_ns / 1e9, ttft / n / 1e6, e2e / n / 1e6))
                done, n, ttft, e2e, at = done + n, 0, 0, 0, 0
        return batches if len(batches) >= FEWEST_BATCHES else []

    def first_and_last_third(self) -> tuple[float, float]:
        """Mean end-to-end latency of the earliest and of the latest third of the window's bins, in ms."""
        if not self._bins:
            return 0.0, 0.0
        edge = (max(self._bins) + 1) / 3
        early = [row for place, row in self._bins.items() if place < edge]
        late = [row for place, row in self._bins.items() if place >= 2 * edge]
        first, last = (sum(row[2] for row in rows) / max(sum(row[0] for row in rows), 1) for rows in (early, late))
        return first / 1e6, last / 1e6

    def _widen(self) -> None:
        old, self._bins = self._bins, {}
        self._width_ns *= 2
        for place, row in old.items():
            self._take(place // 2, row)

    def _take(self, place: int, row: Sequence[int]) -> None:
        ours = self._bins.setdefault(place, [0, 0, 0])
        ours[:] = [a + b for a, b in zip(ours, row, strict=True)]


class Silence:
    """Hears of every answer when it is complete; `gaps` tells the times without output while something was waiting."""

    def __init__(self) -> None:
        self._width_ns = _SILENCE_BIN_NS
        self._sounds: set[int] = set()  # bins in which any output came
        self._waits: dict[int, int] = {}  # bin -> requests that began waiting minus those that ended

    def hear(self, start_ns: int, sent_ns: int, ended_ns: int, stamps: "array[int]") -> None:
        """One answer, by the same clock as the start of the window."""
        width = self._width_ns
        self._sounds.update(bins(stamps, start_ns, width))
        self._wait((sent_ns - start_ns) // width, 1)
        self._wait((ended_ns - start_ns) // width, -1)
        while len(self._sounds) > _MOST_SILENCE_BINS or len(self._waits) > _MOST_SILENCE_BINS:
            self._widen()

    def merge(self, other: "Silence") -> None:
        while self._width_ns < other._width_ns:
            self._widen()
        factor = self._width_ns // other._width_ns or 1
        self._sounds.update(place // factor for place in other._sounds)
        for place, count in other._waits.items():
            self._wait(place // factor, count)

    def gaps(self, window_s: float) -> list[tuple[float, float]]:
        """Times of the window without any output while a request was waiting: for how long, and from when, in seconds.

        Of requests that were answered well, to 10 ms (less for windows of more than a quarter of an hour). What
        precedes the first output of all is none: it has to come from somewhere.
        """
        end = round(window_s * 1e9) // self._width_ns
        first = min(self._sounds, default=0)
        silences = []
        waiting = quiet_since = 0
        for place in sorted(self._sounds | self._waits.keys()):
            heard = place in self._sounds
            length = min(place, end) - max(quiet_since, 0)
            if heard and waiting and length > 0 and place > first:
                silences.append((length * self._width_ns / 1e9, max(quiet_since, 0) * self._width_ns / 1e9))
            if heard or not waiting:
                quiet_since = place
            waiting += self._waits.get(place, 0)
        return silences

    def _wait(self, place: int, count: int) -> None:
        self._waits[place] = self._waits.get(place, 0) + count

    def _widen(self) -> None:
        """A narrower one that is merged later still fits: widths are powers of two of each other."""
        self._width_ns *= 2
        self._sounds = {place // 2 for place in self._sounds}
        waits, self._waits = self._waits, {}
        for place, count in waits.items():
            self._wait(place // 2, count)


class LatencyShift(NamedTuple):
    """A level, and the other one that it went to."""

    before: float
    after: float
    until_s: float = 0.0  # when the first level ended

    @property
    def share(self) -> float:
        return self.after / self.before - 1


def cold_start(at_s: Sequence[float], means: Sequence[float], *, queued: bool, factor: float) -> LatencyShift | None:
    """A slow beginning: the first batch against the last two thirds, by the law of a mean of one batch. `queued`: open
    loop, where neighbouring batches may wait in one queue."""
    rest = means[len(means) // 3 :]
    usual = sum(rest) / len(rest)
    if means[0] <= factor * usual or min(rest) <= 0:
        return None
    logs = [math.log(mean) for mean in rest]  # means of skewed times are skewed themselves, their logarithms less so
    level = sum(logs) / len(logs)
    spread, independent = _noise(logs, [level] * len(logs), queued, fitted_terms=1)
    if independent < _FEWEST_INDEPENDENT / 2:
        return None
    if math.log(means[0]) - level <= _t_limit(independent - 1) * spread * math.sqrt(1 + 1 / independent):
        return None
    warm = (number for number, mean in enumerate(means) if mean < usual + (means[0] - usual) / 4)
    return LatencyShift(means[0], usual, at_s[next(warm)])


def drift(at_s: Sequence[float], means: Sequence[float], *, queued: bool, share: float) -> LatencyShift | None:
    """A lasting change of more than `share` from the first to the last third: medians, which hiccups don't move.

    Sure is what the ranks of the batches say (their values where they are few): the better of a slope and a step in
    the middle, against the noise. In an open loop a queue makes neighbouring batches alike, and a queue that wanders
    is no drift: there the noise counts by the number of independent batches that its autocorrelation leaves. Where it
    leaves too few, as a change much smoother than the noise does too, the steps must go one way, as no queue goes. A
    closed loop has no such queue.
    """
    if len(means) < FEWEST_BATCHES:
        return None
    third = len(means) // 3
    change = LatencyShift(median(means[:third]), median(means[-third:]), at_s[-third])
    if min(change.before, change.after) <= 0 or abs(math.log(change.after / change.before)) <= math.log(1 + share):
        return None
    tested = _ranks(means) if len(means) >= _FEWEST_RANKED else means
    step = [float(number >= len(means) // 2) for number in range(len(means))]
    fits = [_fit(shape, tested) for shape in (at_s, step)]
    fitted, centred, slope = min(fits, key=lambda fit: math.dist(tested, fit[0]))
    spread, independent = _noise(tested, fitted, queued, fitted_terms=2)
    if queued and independent < _FEWEST_INDEPENDENT:
        return change if _one_way(means) else None
    inflated = len(means) / independent if queued else 1.0
    error = spread * math.sqrt(inflated / sum(x * x for x in centred))
    return change if abs(slope) > _t_limit(independent - 2) * error else None


def longest_silence(silences: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """The longest silence, when it began, and the longest to expect from the others; None for too few of them. Their
    upper tail is taken as exponential; the limit is that of the largest of as many new draws, their mean only
    estimated."""
    if len(silences) <= _TAIL:
        return None
    (length_s, began_s), *others = sorted(silences, reverse=True)
    kept = max(_TAIL, len(others) // 10)
    tail = [length for length, _ in others[:kept]]
    beyond = sum(tail) / kept - tail[-1]
    return length_s, began_s, tail[-1] + beyond * kept * ((_SILENCE_ALPHA / kept) ** (-1 / kept) - 1)


def queue_growth(due: Sequence[int], ended: Sequence[int]) -> tuple[int, float] | None:
    """By how many requests the queue grew until the end, and the share of what was due that ended; None if it settles.

    The rows are seconds. A queue that is just not overloaded wanders like a sum of independent steps, one for each
    arrival and departure: growth beyond four times the root of their number has a chance below ALPHA.
    """
    grown = list(accumulate(came - went for came, went in zip(due, ended, strict=True)))
    third = len(grown) // 3
    if not third or grown[-1] <= 4 * math.sqrt(sum(due) + sum(ended)):
        return None
    return (grown[-1], sum(ended) / sum(due)) if grown[-1] - grown[-1 - third] > grown[-1] / 6 else None


def _fit(shape: Sequence[float], means: Sequence[float]) -> tuple[list[float], list[float], float]:
    """Least squares of a constant and `shape`: the fitted values, the shape around its mean, and its slope."""
    middle, level = sum(shape) / len(shape), sum(means) / len(means)
    centred = [x - middle for x in shape]
    slope = sum(x * y for x, y in zip(centred, means, strict=True)) / sum(x * x for x in centred)
    return [level + slope * x for x in centred], centred, slope


def _one_way(means: Sequence[float]) -> bool:
    """Whether hardly a step goes back: so went four of 18,000 simulated queues from 0.9 to 1.0 of their capacity."""
    if len(means) < _FEWEST_STEPS:
        return False
    rising = sum(after > before for before, after in pairwise(means))
    return min(rising, len(means) - 1 - rising) <= (len(means) - 1) * _STEPS_BACK


def _ranks(means: Sequence[float]) -> list[float]:
    ordered = sorted(means)
    return [(bisect_left(ordered, mean) + bisect_right(ordered, mean) - 1) / 2 for mean in means]


def _noise(means: Sequence[float], fitted: Sequence[float], queued: bool, fitted_terms: int) -> tuple[float, float]:
    """Standard deviation of a batch, and how many independent ones the batches are worth."""
    n = len(means)
    if not queued:  # by neighbours' differences, which a change of level hardly enters; worth two thirds of a variance
        return math.sqrt(sum((b - a) ** 2 for a, b in pairwise(means)) / 2 / (n - 1)), 1 + (n - 1) * 2 / 3
    if n <= 5:
        return 0.0, 0.0
    rest = [mean - fit for mean, fit in zip(means, fitted, strict=True)]
    squares = sum(x * x for x in rest)
    if not squares:
        return 0.0, float(n)
    likeness = sum(a * b for a, b in pairwise(rest)) / squares
    likeness = (likeness * n + fitted_terms) / (n - 2 - fitted_terms)  # what is fitted makes neighbours look less alike
    likeness = max(likeness + fitted_terms * math.sqrt(max(1 - likeness**2, 0.0) / n), 0.0)  # on the safe side
    independent = n * (1 - likeness) / (1 + likeness) if likeness < 1 else 0.0
    return math.sqrt(squares / (n - fitted_terms)), independent


def _t_limit(df: float) -> float:
    """Student's quantile for Z of the normal law, by its expansion in 1/df: 4% too low at 6, an eighth at 4."""
    df = max(df, 1.0)
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / df + second / df**2 + third / df**3
