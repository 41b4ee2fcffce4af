"""The exact interval of a rate that was counted (Clopper and Pearson)."""

from __future__ import annotations

from collections.abc import Callable

from benchhouse.analysis.student import incomplete_beta


def exact_interval(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Both ends; the interval covers the true rate at least as often as `confidence` says, for every n."""
    if not 0 <= hits <= n or n < 1:
        raise ValueError(f"a rate needs 0 <= hits <= n and n >= 1, found {hits} of {n}")
    tail = (1.0 - confidence) / 2.0
    # P(X >= hits) for X binomial(n, p) is the incomplete beta function of p; both ends solve for p.
    low = 0.0 if hits == 0 else _solve(lambda p: incomplete_beta(hits, n - hits + 1, p) - tail)
    high = 1.0 if hits == n else _solve(lambda p: incomplete_beta(hits + 1, n - hits, p) - (1.0 - tail))
    return low, high


def _solve(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if rising(middle) < 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
