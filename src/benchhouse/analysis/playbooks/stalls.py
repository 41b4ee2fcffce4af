"""Requests that were held together: the effect of a stall on the order in which requests end. Pure.

A stalled server holds all requests in flight. When it continues, they end together, each delayed by the whole stall,
directly after requests that took the usual time. A growing queue does not jump: each request waits slightly longer than
the previous one. Requests that are slow for reasons of their own (a retry, a large one) end alone. If there are many of
these, two of them end together by chance, so most requests that are equally slow must have been held together, too.
"""

from collections.abc import Sequence
from itertools import pairwise

# requests that end in sequence, of which two must have been held: others may end in between
_TOGETHER = 4
_BEFORE = 4
# share of the hold: requests that ended before it may have taken at most this; requests that took more count as slow
_JUMP = 0.5
_MOST = 0.75  # share of the slow requests that must have ended near another one
_TRIED = 16


def longest_hold(took_s: Sequence[float]) -> float:
    """Return the longest time that two requests were held together, 0 if none were; `took_s` is in the order in which
    they ended.
    """
    jumps = (at for at in range(_BEFORE, len(took_s) - 1) if took_s[at] * _JUMP >= took_s[at - 1])
    holds = {
        held
        for at in jumps
        if (held := sorted(took_s[at : at + _TOGETHER])[-2]) * _JUMP >= max(took_s[at - _BEFORE : at]) and held > 0
    }
    longest = sorted(holds, reverse=True)[:_TRIED]
    return next((held for held in longest if _all_together(took_s, held)), 0.0)


def _all_together(took_s: Sequence[float], held: float) -> bool:
    """Whether most requests that took more than half as long ended near another such one."""
    slow = [at for at, took in enumerate(took_s) if took >= _JUMP * held]
    gaps = [_TOGETHER, *(after - at for at, after in pairwise(slow)), _TOGETHER]
    beside = sum(min(before, after) < _TOGETHER for before, after in pairwise(gaps))
    return beside >= _MOST * len(slow)
