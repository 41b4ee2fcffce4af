"""Student's t distribution, and Welch's test on the means of two samples, in plain Python."""

import math
from functools import lru_cache

P_METHOD = "Welch's t test"
LARGEST_LOG = 700.0  # exp of more overflows


def two_sided_p(t: float, df: float) -> float:
    """Return P(|T| >= |t|) for Student's t with `df` degrees of freedom (may be fractional)."""
    if math.isinf(t):
        return 0.0
    return incomplete_beta(df / 2.0, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def critical_t(confidence: float, df: float) -> float:
    """Return the t that leaves (1 - confidence) / 2 in each tail."""
    tails = 1.0 - confidence
    log_peak = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0) - 0.5 * math.log(df * math.pi)
    z = _critical_z(confidence)
    t = z + (z**3 + z) / (4.0 * df)
    # The start lies below the root and the tail is convex, so Newton's steps approach it from below and never
    # overshoot.
    for _ in range(100):
        density = math.exp(log_peak - (df + 1.0) / 2.0 * math.log1p(t * t / df))
        step = (two_sided_p(t, df) - tails) / (2.0 * density)
        t += step
        if abs(step) < 1e-10 * t:
            break
    return t


@lru_cache(maxsize=16)
def _critical_z(confidence: float) -> float:
    z = 0.0
    for _ in range(100):
        step = (math.erfc(z / math.sqrt(2.0)) - (1.0 - confidence)) * math.sqrt(math.pi / 2.0) * math.exp(z * z / 2.0)
        z += step
        if abs(step) < 1e-12:
            break
    return z


def mean_interval(mean: float, error: float, df: float, confidence: float, *, positive: bool) -> tuple[float, float]:
    """Return Student's interval of a mean with the standard error `error`.

    If all values are `positive`, the upper end is that on the log scale: near zero, values are skewed, so that a mean
    that is too small by chance has a spread that is too small, too, and the truth lies above the plain interval.
    """
    half = critical_t(confidence, df) * error
    if not positive:
        return mean - half, mean + half
    return max(0.0, mean - half), mean * math.exp(min(half / mean, LARGEST_LOG))


def welch_df(var_a: float, var_b: float, n_a: float, n_b: float) -> float:
    """Return the Welch-Satterthwaite degrees of freedom from the variances of the two means, of which one may
    be zero.
    """
    share = var_a / (var_a + var_b)
    return 1.0 / (share**2 / (n_a - 1) + (1.0 - share) ** 2 / (n_b - 1))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function, by Lentz's continued fraction on its fast side."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1.0 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c = 1.0
    d = 1.0 / (1.0 - (a + b) * x / (a + 1.0) or tiny)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        step = 1.0
        for numerator in (even, odd):
            d = 1.0 / (1.0 + numerator * d or tiny)
            c = 1.0 + numerator / c or tiny
            step = c * d
            fraction *= step
        if abs(step - 1.0) < 1e-14:
            break
    return fraction
