"""Bootstrap-t critical values for many pairs of samples at once.

Import it only if needed: callers whose samples are all too small to resample then do not load numpy.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# Multiplications in one matrix product. A larger one would wake the threads of the linear algebra library, whose
# waiting costs more CPU time than the work; and blocks of this size keep every intermediate in the cache.
_BLOCK = 250_000


class Critical(NamedTuple):
    """Lower and upper critical value of a studentized statistic."""

    lo: float
    hi: float


class Criticals(NamedTuple):
    """Critical values of one pair: for the difference of the means, and for the log of their ratio (None unless
    positive).
    """

    difference: Critical
    log_ratio: Critical | None


def resample(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
    *,
    positive: bool,
    confidence: float,
    resamples: int,
    seed: int,
) -> list[Criticals]:
    """Return critical values of pairs that all have the same (n_a, n_b) and some spread.

    All pairs share one set of resamples, which depends only on `seed`, n_a and n_b: a pair gets the same result in any
    batch. Values may be infinite if ties leave many resamples without spread.
    """
    n_a, n_b = len(pairs[0][0]), len(pairs[0][1])
    counts_a, counts_b = _counts(n_a, n_b, resamples, seed)
    a, b = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    tail, criticals = _tail_size(confidence, resamples), []
    rows = max(1, _BLOCK // (resamples * max(n_a, n_b)))
    for start in range(0, len(pairs), rows):
        block = slice(start, start + rows)
        criticals.extend(_criticals(a[block], b[block], counts_a, counts_b, tail, positive))
    return criticals


@lru_cache(4)
def _counts(n_a: int, n_b: int, resamples: int, seed: int) -> tuple[Matrix, Matrix]:
    """Return resamples as rows of counts, so that all their sums become one matrix product. Drawing them is half of the
    work, and most comparisons in a process have the same sizes, so they are cached.
    """
    generator = np.random.default_rng([seed, n_a, n_b])
    counts_a = generator.multinomial(n_a, [1.0 / n_a] * n_a, size=resamples).T / n_a
    counts_b = generator.multinomial(n_b, [1.0 / n_b] * n_b, size=resamples).T / n_b
    for counts in (counts_a, counts_b):
        counts.flags.writeable = False
    return counts_a, counts_b


def resample_sum(groups: Sequence[Sequence[float]], confidence: float, resamples: int, seed: int) -> Critical:
    """Return critical values of the studentized sum of the groups' means."""
    shift, var = np.zeros(resamples), np.zeros(resamples)
    for place, group in enumerate(groups):
        n = len(group)
        generator = np.random.default_rng([seed, place, n])
        counts = generator.multinomial(n, [1.0 / n] * n, size=resamples) / n
        values: Matrix = np.array(group)
        means = counts @ values
        shift += means
        var += np.maximum(counts @ (values * values) - means * means, 0.0) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = np.nan_to_num(shift / np.sqrt(var), nan=0.0, posinf=np.inf, neginf=-np.inf)
    tail = _tail_size(confidence, resamples)
    statistics.sort()
    return Critical(float(statistics[tail - 1]), float(statistics[resamples - tail]))


def _tail_size(confidence: float, resamples: int) -> int:
    return max(1, int((resamples + 1) * (1.0 - confidence) / 2.0 + 1e-9))


def _criticals(a: Matrix, b: Matrix, counts_a: Matrix, counts_b: Matrix, tail: int, positive: bool) -> list[Criticals]:
    n_a, n_b = a.shape[1], b.shape[1]
    mean_a, mean_b = a.mean(axis=1, keepdims=True), b.mean(axis=1, keepdims=True)
    scale = np.sqrt(a.var(axis=1, keepdims=True) / (n_a - 1) + b.var(axis=1, keepdims=True) / (n_b - 1))
    mean_a, mean_b, off_a, off_b = mean_a / scale, mean_b / scale, (a - mean_a) / scale, (b - mean_b) / scale
    shift_a, shift_b = off_a @ counts_a, off_b @ counts_b
    var_a = np.maximum((off_a * off_a) @ counts_a - shift_a * shift_a, 0.0) / (n_a - 1)
    var_b = np.maximum((off_b * off_b) @ counts_b - shift_b * shift_b, 0.0) / (n_b - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = _tails((shift_b - shift_a) / np.sqrt(var_a + var_b), tail)
        if not positive:
            return [Criticals(critical, None) for critical in difference]
        ratio_a, ratio_b = 1.0 + shift_a / mean_a, 1.0 + shift_b / mean_b
        spread = np.sqrt(var_a / (mean_a * ratio_a) ** 2 + var_b / (mean_b * ratio_b) ** 2)
        log_ratio = _tails(np.log(ratio_b / ratio_a) / spread, tail)
    return [Criticals(d, r) for d, r in zip(difference, log_ratio, strict=True)]


def _tails(statistics: Matrix, tail: int) -> list[Critical]:
    """Return the `tail`-th smallest and largest per row; a resample without shift or spread (0/0) counts as zero."""
    last = statistics.shape[1] - 1
    statistics[np.isnan(statistics)] = 0.0
    statistics.partition([tail - 1, last - tail + 1], axis=1)
    lows, highs = statistics[:, tail - 1].tolist(), statistics[:, last - tail + 1].tolist()
    return [Critical(lo, hi) for lo, hi in zip(lows, highs, strict=True)]
