"""Requests that were held together: what a stall does to the order in which requests end. Pure.

A server that stands still holds all that it has in hand; when it goes on they end together, each after as long as it
was held, right behind requests that took the usual time. A queue that builds up does not jump: each request waits a
little longer than the one before. Requests that are slow for reasons of their own (a retry, a large one) end alone.
"""

from collections.abc import Sequence

_TOGETHER = 4
"""Requests that end after one another, of which two must have been held: others may end in between."""
_BEFORE = 4
_JUMP = 0.5
"""Of the hold: the requests that ended before may have taken so much at most."""


def longest_hold(took_s: Sequence[float]) -> float:
    """The longest time that two requests were held together; `took_s` are in the order in which they ended."""
    longest = 0.0
    for at in range(_BEFORE, len(took_s) - 1):
        if took_s[at] <= longest:
            continue  # the first of a hold is beyond what came before it; most requests end here
        held = sorted(took_s[at : at + _TOGETHER])[-2]
        if held > longest and max(took_s[at - _BEFORE : at]) <= _JUMP * held:
            longest = held
    return longest
