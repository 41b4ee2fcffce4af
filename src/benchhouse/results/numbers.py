"""How numbers are formatted for people, and which statistics of a metric lead: shared by reports and terminal."""

import math
from collections.abc import Collection

from benchhouse.analysis import student
from benchhouse.analysis.summary import enough_for

THIN = "\u2009"
MINUS = "\u2212"
NONE = "–"
INVALID = "INVALID"
"""Shown in place of a number that is INVALID in every trial."""
STATS = ("value", "mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max", "n")
"""The order in which the statistics of one metric are shown."""
SEED = 20_240_229
"""Seed of the resamples; fixed, so that the same numbers always give the same intervals."""
Ends = tuple[float, float] | None
_DIGITS = 4
_FEWEST, _MOST = 3, 6
_MOST_PLACES = 12
_OFF_MATTERS = 0.01
_QUANTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def primary_stats(stats: Collection[str]) -> list[str]:
    """Return the statistics that represent a metric: its single value, otherwise its center and its tail."""
    wanted = ("value",) if "value" in stats else ("mean", "p50", "p99")
    return [stat for stat in wanted if stat in stats]


HEADLINE_STATS = ("value", "mean", "p50", "p99")
"""All statistics that `headline_stats` may choose."""


def headline_stats(stats: Collection[str]) -> list[str]:
    """Return the fewest statistics that describe a metric: its single value, otherwise its center and, if it has one,
    its tail.
    """
    centre = next((stat for stat in ("value", "mean", "p50") if stat in stats), None)
    tail = ["p99"] if "p99" in stats and centre != "value" else []
    return ([centre] if centre else []) + tail


def stat_place(stat: str) -> tuple[int, str]:
    """Return the place of a statistic among those of its metric; unknown ones come last, by name."""
    return (STATS.index(stat), "") if stat in STATS else (len(STATS), stat)


def name_of(metric: str, stat: str) -> str:
    """Return a name such as `qps` or `latency p99`."""
    return metric if stat == "value" else f"{metric} {stat}"


def titled(name: str, unit: str) -> str:
    """Return the header of a column: `latency p99 (ms)`; a ratio (unit 1) has no unit."""
    return name if unit in ("1", "") else f"{name} ({unit})"


def mean_interval(
    mean: float, stdev: float | None, n: int, minimum: float | None = None, confidence: float = 0.95
) -> tuple[float, float] | None:
    """Return the interval of the mean over n trials by Student's t; None for fewer than two.

    `minimum` is the smallest value of this metric anywhere: if it is positive, the upper end is computed on the log
    scale; if it is not negative, the interval does not go below zero.
    """
    if n < 2 or stdev is None:
        return None
    positive = minimum is not None and minimum > 0.0
    low, high = student.mean_interval(mean, stdev / math.sqrt(n), n - 1, confidence, positive=positive)
    return max(0.0, low) if minimum is not None and minimum >= 0.0 else low, high


def shaky(stat: str, samples: int) -> str:
    """Return why a percentile should not be trusted; empty if it has enough samples."""
    quantile = _QUANTILES.get(stat)
    if quantile is None or enough_for(quantile, samples):
        return ""
    needed = round(1.0 / (1.0 - quantile))
    return f"{stat} from {samples} sample{'' if samples == 1 else 's'}; {needed:,} are needed"


def number(value: float | None, spread: float | None = None) -> str:
    """Format a value with the digits that its spread leaves meaningful: two digits of the spread, three to six in
    total.
    """
    if value is None:
        return NONE
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    digits = _DIGITS
    if spread:
        digits = min(_MOST, max(_FEWEST, size - math.floor(math.log10(spread)) + 2))
    if not -4 <= size < 9:
        return _scientific(value, digits - 1)
    return _grouped(value, max(0, digits - 1 - size), strip=not spread)


def spread_text(value: float, spread: float | None) -> str:
    """Format the spread with two digits; empty if it is None."""
    if spread is None:
        return ""
    if spread == 0.0:
        return "0"
    size = math.floor(math.log10(spread))
    return _scientific(spread, 1) if not -4 <= size < 9 else _grouped(spread, max(0, 1 - size), strip=False)


def off_text(value: float, bound: float | None) -> str:
    """Return `can be off by 1.4`, in the value's unit; empty if unknown, or below a hundredth of the value."""
    return f"can be off by {spread_text(value, bound)}" if bound and bound >= _OFF_MATTERS * abs(value) else ""


def quantity(value: float | None, unit: str, spread: float | None = None) -> str:
    """Format a value with its unit after a thin space; a ratio (unit 1) has none, and `1/s` becomes `20 000/s`."""
    return number(value, spread) + ("" if value is None else _behind(unit))


def _behind(unit: str) -> str:
    if unit in ("1", ""):
        return ""
    return unit[1:] if unit.startswith("1/") else THIN + unit


def change_texts(
    change: float | None, change_ends: Ends, difference: float | None, difference_ends: Ends, unit: str
) -> tuple[str, str]:
    """Format a change and its interval: relative if that has an interval, otherwise in the unit of the metric.

    All three numbers have the same number of decimals, according to the width of the interval.
    """
    relative = change is not None and (change_ends or not difference_ends)
    value, ends = (change, change_ends) if relative else (difference, difference_ends)
    if value is None or not ends or ends[0] == ends[1]:
        return percent(value) if relative else _signed(value, unit), "no spread" if ends else ""
    scale = 100.0 if relative else 1.0
    middle, low, high = (number * scale for number in (value, *ends))
    if not 1e-6 <= max(abs(middle), abs(low), abs(high)) < 1e9 and not relative:
        return _signed(middle, unit), f"{_signed(low, '1')} to {_signed(high, unit)}"
    places = _percent_places(low, high) if relative else _places(low, high, digits=3)
    texts = [("+" if number > 0.0 else "") + _grouped(number, places, strip=False) for number in (middle, low, high)]
    while not relative and all("." in text and text[-1] in "0." for text in texts):
        texts = [text[:-1] for text in texts]
    behind = "%" if relative else _behind(unit)
    return texts[0] + behind, f"{texts[1]}{behind if relative else ''} to {texts[2]}{behind}"


def _percent_places(low: float, high: float) -> int:
    """Return at least one decimal, and enough that an end does not look like a total loss."""
    places = max(1, _places(low, high, digits=1))
    while places < _MOST_PLACES and any(end != -100.0 == round(end, places) for end in (low, high)):
        places += 1
    return places


def _places(low: float, high: float, digits: int) -> int:
    """Return the decimals for `digits` digits of half the interval, and enough that a nonzero end does not look like
    zero.
    """
    places = max(0, digits - 1 - math.floor(math.log10((high - low) / 2)))
    while places < _MOST_PLACES and any(end and not round(end, places) for end in (low, high)):
        places += 1
    return min(places, _MOST_PLACES)


def _signed(value: float | None, unit: str) -> str:
    return ("+" if value and value > 0.0 else "") + quantity(value, unit)


def percent(fraction: float | None, *, signed: bool = True) -> str:
    """Format a change as a percentage with one decimal, more if it is tiny."""
    if fraction is None:
        return NONE
    if fraction == 0.0:
        return "0%"
    value = fraction * 100.0
    digits = ".1f" if abs(value) >= 0.1 else ".2g"
    if -100.0 < value < -99.9:
        digits = ".3f"  # "-100%" would mean that nothing is left
    if abs(value) >= 1e4:
        return ("+" if signed and value > 0.0 else "") + _grouped(value, 1, strip=False) + "%"
    return f"{value:{'+' if signed else ''}{digits}}%".replace("-", MINUS)


def lead_texts(change: float, interval: tuple[float, float]) -> tuple[str, str]:
    """Return how far the best leads another (`12% above`) and the interval, from the other's change relative to the
    best.
    """
    ahead = 1.0 / (1.0 + change) - 1.0
    low, high = sorted(1.0 / (1.0 + end) - 1.0 for end in interval)
    side = "above" if ahead > 0 else "below"
    return f"{percent(abs(ahead), signed=False)} {side}", f"{percent(low)} to {percent(high)}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}{THIN}h {minutes}{THIN}min" if hours else f"{minutes}{THIN}min {rest}{THIN}s"


def _scientific(value: float, places: int) -> str:
    mantissa, _, exponent = f"{value:.{places}e}".partition("e")
    return f"{mantissa}e{int(exponent)}".replace("-", MINUS)


def _grouped(value: float, places: int, *, strip: bool) -> str:
    text = f"{abs(value):.{places}f}"
    whole, _, rest = text.partition(".")
    if len(whole) > 4:  # the same rule for values and spreads: 8681 ± 2329, 20 954 ± 852
        whole = f"{int(whole):,}".replace(",", THIN)
    rest = rest.rstrip("0") if strip else rest
    return (MINUS if value < 0 else "") + (f"{whole}.{rest}" if rest else whole)
