"""Requests that were held together: what a stall does to the order in which requests end. Pure.

A server that stands still holds all that it has in hand; when it goes on they end together, each after as long as it
was held, right behind requests that took the usual time. A queue that builds up does not jump: each request waits a
little longer than the one before. Requests that are slow for reasons of their own (a retry, a large one) end alone;
where there are many, two of them end together by chance, so most of what is as slow must have been held together, too.
"""

from collections.abc import Sequence
from itertools import pairwise

_TOGETHER = 4  # requests that end after one another, of which two must have been held: others may end in between
_BEFORE = 4
_JUMP = 0.5  # of the hold: the requests that ended before may have taken so much at most, and what took more is as slow
_MOST = 0.75  # of the requests that are as slow: so many must have ended beside another one
_TRIED = 16


def longest_hold(took_s: Sequence[float]) -> float:
    """The longest time that two requests were held together; `took_s` are in the order in which they ended."""
    jumps = (at for at in range(_BEFORE, len(took_s) - 1) if took_s[at] * _JUMP >= took_s[at - 1])
    holds = {
        held
        for at in jumps
        if (held := sorted(took_s[at : at + _TOGETHER])[-2]) * _JUMP >= max(took_s[at - _BEFORE : at]) and held > 0
    }
    longest = sorted(holds, reverse=True)[:_TRIED]
    return next((held for held in longest if _all_together(took_s, held)), 0.0)


def _all_together(took_s: Sequence[float], held: float) -> bool:
    """Whether most requests that took more than half as long ended beside another such one."""
    slow = [at for at, took in enumerate(took_s) if took >= _JUMP * held]
    gaps = [_TOGETHER, *(after - at for at, after in pairwise(slow)), _TOGETHER]
    beside = sum(min(before, after) < _TOGETHER for before, after in pairwise(gaps))
    return beside >= _MOST * len(slow)
