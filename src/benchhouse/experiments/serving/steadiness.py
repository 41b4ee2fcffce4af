"""Check whether a window was one steady state: sums over time, and tests that natural variance passes.

Every test is built for one false alarm in a thousand clean trials (`ALPHA`), and gives no result if the data does not
suffice. Simulated queues beyond 90% of their capacity, which wander for as long as a short window, gave up to eight.
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
_SILENCE_ALPHA = ALPHA / 10  # for tails somewhat heavier than exponential, such as those of mixed lengths
Z = 3.9  # of the normal law: ALPHA for two sides, two series, and the better of two shapes
MOST_BATCHES = 30
FEWEST_BATCHES = 6
_LEAST_IN_BATCH = 8  # the mean of this many exponential times is close enough to normal
_FEWEST_INDEPENDENT = 6.0
_FEWEST_RANKED = 10  # the order of fewer batches is too often chance
_FEWEST_STEPS = 20
_STEPS_BACK = 1 / 7
_MOST_BINS = 1024
_TAIL = 10
_SILENCE_BIN_NS = 10_000_000
_MOST_SILENCE_BINS = 100_000  # beyond it, bins double their width


class LatencyBatch(NamedTuple):
    """Neighboring requests, in the order in which they were due."""

    at_s: float
    ttft_ms: float
    e2e_ms: float


class LatencyHistory:
    """Latencies over the time of the window, in at most 1,024 bins, whose width doubles when a load outgrows them."""

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
        """Return at most 30 batches of equally many requests, at least 8 each; empty if there are fewer than 6.

        In a closed loop, each holds at least twice the requests that were in flight at a time: the wait of one request
        for another then stays within a batch, and batches are independent. In an open loop (`queued`), no batch is long
        enough for that, and tests use the similarity of neighbors.
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
        """Return the mean end-to-end latency of the earliest and of the latest third of the window's bins, in ms."""
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
    """Times without output while a request was waiting, from the complete answers that are added."""

    def __init__(self) -> None:
        self._width_ns = _SILENCE_BIN_NS
        self._sounds: set[int] = set()  # bins in which any output came
        self._waits: dict[int, int] = {}  # bin -> requests that began waiting minus those that ended

    def hear(self, start_ns: int, sent_ns: int, ended_ns: int, stamps: "array[int]") -> None:
        """Add one complete answer, by the same clock as the start of the window."""
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
        """Return the length and the start, in seconds, of times of the window without output while a request was
        waiting.

        Only successful requests count. Times are exact to 10 ms (less for windows of more than a quarter of an hour).
        The time before the very first output is excluded: it has to come from somewhere.
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
        """Double the width. A narrower Silence still merges later: widths are powers of two of each other."""
        self._width_ns *= 2
        self._sounds = {place // 2 for place in self._sounds}
        waits, self._waits = self._waits, {}
        for place, count in waits.items():
            self._wait(place // 2, count)


class LatencyShift(NamedTuple):
    """A level, and the level that follows it."""

    before: float
    after: float
    until_s: float = 0.0  # when the first level ended

    @property
    def share(self) -> float:
        return self.after / self.before - 1


def cold_start(at_s: Sequence[float], means: Sequence[float], *, queued: bool, factor: float) -> LatencyShift | None:
    """Detect a slow beginning: compare the first batch with the last two thirds, by the distribution of the mean of one
    batch. None if there is none. `queued`: open loop, in which neighboring batches may wait in one queue."""
    rest = means[len(means) // 3 :]
    usual = sum(rest) / len(rest)
    if means[0] <= factor * usual or min(rest) <= 0:
        return None
    logs = [math.log(mean) for mean in rest]  # means of skewed times are skewed too, their logarithms less so
    level = sum(logs) / len(logs)
    spread, independent = _noise(logs, [level] * len(logs), queued, fitted_terms=1)
    if independent < _FEWEST_INDEPENDENT / 2:
        return None
    if math.log(means[0]) - level <= _t_limit(independent - 1) * spread * math.sqrt(1 + 1 / independent):
        return None
    warm = (number for number, mean in enumerate(means) if mean < usual + (means[0] - usual) / 4)
    return LatencyShift(means[0], usual, at_s[next(warm)])


def drift(at_s: Sequence[float], means: Sequence[float], *, queued: bool, share: float) -> LatencyShift | None:
    """Detect a lasting change of more than `share` from the first to the last third, by medians, which outliers don't
    move.

    The change must be significant in the ranks of the batches (their values if they are few): the better of a slope and
    a step in the middle, against the noise. In an open loop, a queue makes neighboring batches alike, and a queue that
    wanders is not drift: the noise there counts by the number of independent batches that its autocorrelation leaves.
    If that is too few, which a change much smoother than the noise also causes, the steps must go one way, as those of
    a queue never do. A closed loop has no such queue.
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
    """Return the longest silence, its start, and the longest to expect from the others; None if there are too few of
    them. Their upper tail is taken as exponential; the limit is that of the largest of equally many new draws, with an
    estimated mean."""
    if len(silences) <= _TAIL:
        return None
    (length_s, began_s), *others = sorted(silences, reverse=True)
    kept = max(_TAIL, len(others) // 10)
    tail = [length for length, _ in others[:kept]]
    beyond = sum(tail) / kept - tail[-1]
    return length_s, began_s, tail[-1] + beyond * kept * ((_SILENCE_ALPHA / kept) ** (-1 / kept) - 1)


def queue_growth(due: Sequence[int], ended: Sequence[int]) -> tuple[int, float] | None:
    """Return the growth of the queue until the end, in requests, and the share of due requests that ended; None if it

    settles. The rows are seconds. A queue that is just not overloaded wanders like a sum of independent steps, one for
    each arrival and departure: growth beyond four times the root of their number has a chance below ALPHA.
    """
    grown = list(accumulate(came - went for came, went in zip(due, ended, strict=True)))
    third = len(grown) // 3
    if not third or grown[-1] <= 4 * math.sqrt(sum(due) + sum(ended)):
        return None
    return (grown[-1], sum(ended) / sum(due)) if grown[-1] - grown[-1 - third] > grown[-1] / 6 else None


def _fit(shape: Sequence[float], means: Sequence[float]) -> tuple[list[float], list[float], float]:
    """Fit a constant and `shape` by least squares. Return the fitted values, the centered shape, and its slope."""
    middle, level = sum(shape) / len(shape), sum(means) / len(means)
    centred = [x - middle for x in shape]
    slope = sum(x * y for x, y in zip(centred, means, strict=True)) / sum(x * x for x in centred)
    return [level + slope * x for x in centred], centred, slope


def _one_way(means: Sequence[float]) -> bool:
    """Return whether hardly a step goes back, as in four of 18,000 simulated queues at 0.9 to 1.0 of capacity."""
    if len(means) < _FEWEST_STEPS:
        return False
    rising = sum(after > before for before, after in pairwise(means))
    return min(rising, len(means) - 1 - rising) <= (len(means) - 1) * _STEPS_BACK


def _ranks(means: Sequence[float]) -> list[float]:
    ordered = sorted(means)
    return [(bisect_left(ordered, mean) + bisect_right(ordered, mean) - 1) / 2 for mean in means]


def _noise(means: Sequence[float], fitted: Sequence[float], queued: bool, fitted_terms: int) -> tuple[float, float]:
    """Return the standard deviation of a batch, and the number of independent batches that the batches are worth."""
    n = len(means)
    if not queued:  # by differences of neighbors, which a change of level hardly enters; worth two thirds of a variance
        return math.sqrt(sum((b - a) ** 2 for a, b in pairwise(means)) / 2 / (n - 1)), 1 + (n - 1) * 2 / 3
    if n <= 5:
        return 0.0, 0.0
    rest = [mean - fit for mean, fit in zip(means, fitted, strict=True)]
    squares = sum(x * x for x in rest)
    if not squares:
        return 0.0, float(n)
    likeness = sum(a * b for a, b in pairwise(rest)) / squares
    likeness = (likeness * n + fitted_terms) / (n - 2 - fitted_terms)  # fitted terms make neighbors look less alike
    likeness = max(likeness + fitted_terms * math.sqrt(max(1 - likeness**2, 0.0) / n), 0.0)  # on the safe side
    independent = n * (1 - likeness) / (1 + likeness) if likeness < 1 else 0.0
    return math.sqrt(squares / (n - fitted_terms)), independent


def _t_limit(df: float) -> float:
    """Return Student's quantile for Z of the normal law, by its expansion in 1/df: 4% too low at 6, an eighth at 4."""
    df = max(df, 1.0)
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / df + second / df**2 + third / df**3
