"""Numbers in the words of people who don't measure: what a user notices, and how sure that is."""

from benchhouse.analysis.playbooks.signals import figure
from benchhouse.analysis.playbooks.values import Number
from benchhouse.results.why import Why

_RARE = {"p95": "20", "p99": "100", "p99.9": "1000"}


def impact(number: Number) -> str:
    """One sentence: who notices what, and by how much."""
    levels = f"{figure(number.base)} → {figure(number.now)} {number.unit if number.unit != '1' else ''}".rstrip()
    if number.metric == "queue_s":
        return f"Jobs wait longer before they start ({levels})."
    if number.change is None:
        return f"{number.name} got worse ({levels})."
    size = abs(number.change)
    if number.is_time:
        who = f"The slowest 1 in {_RARE[number.stat]}" if number.stat in _RARE else "A typical one"
        verb = "take" if number.stat in _RARE else "takes"
        return f"{who} ({number.metric}) {verb} {_longer(size)} ({levels}{_interval(number)})."
    if number.is_rate:
        return f"{size:.0%} less gets done a second ({number.metric} {levels}{_interval(number)})."
    if "cost" in number.metric:
        return f"It costs {size:.0%} more ({number.metric} {levels}{_interval(number)})."
    if "error" in number.metric or "timeout" in number.metric:
        return f"More requests fail ({number.name} {levels}{_interval(number)})."
    return f"{number.name} is {size:.0%} worse ({levels}{_interval(number)})."


def _longer(size: float) -> str:
    return f"{1 + size:.1f} times as long" if size >= 1 else f"{size:.0%} longer"


def _interval(number: Number) -> str:
    if number.low is None or number.high is None:
        return ""
    low, high = sorted((abs(number.low), abs(number.high)))
    if number.is_time and number.change is not None and number.change >= 1:  # in the same words as the change itself
        return f"; between {1 + low:.2f} and {1 + high:.2f} times, 95% sure"
    return f"; between {low:.0%} and {high:.0%}, 95% sure"


def confidence_words(found: Why) -> str:
    """How sure the change is, and apart from it how sure the cause is."""
    if not found.base:
        return "There is no earlier run to compare with: nothing is said about a change."
    if not found.points:
        return (
            f"{found.compared} numbers were compared, corrected for looking at so many; none is worse for sure. "
            "A change smaller than the spread of the repetitions would not be seen."
        )
    change = (
        f"The change is real by the tests of {found.compared} compared numbers, corrected for looking at so many: such "
        "a result would come by chance alone in at most 5 of 100 comparisons."
    )
    if not found.diagnosed:
        return f"{change} The cause is not known."
    first = found.diagnosed[0]
    several = " More than one thing changed between the runs." if len(found.differences) > 1 else ""
    return f"{change} The evidence for the cause is {first.certainty}: {first.why_so_sure}.{several}"
