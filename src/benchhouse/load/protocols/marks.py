"""When the events of an answer arrived, from where they end in its body and from the marks of the reads."""

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub

_LINE_ENDS = 3  # bytes that may follow the end of an event, before the next one begins


def arrivals(ends: Sequence[int], marks: Sequence[tuple[int, int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """The stamp of the read that completed each event, and how much earlier each may have arrived; nothing of that
    where each event was the last of its read, as its stamp is then its own."""
    sizes, stamps, floors = zip(*marks, strict=True)
    first = bisect_left(sizes, ends[0])
    reads: Sequence[int] = range(first, first + len(ends))  # where each event has a read to itself, as most have
    behind = list(map(sub, sizes[first:], ends))
    if len(behind) < len(ends) or min(behind) < 0 or max(behind[:-1], default=0) > _LINE_ENDS:
        reads = [bisect_left(sizes, end) for end in ends]
        behind = [sizes[read] - end for read, end in zip(reads, ends, strict=True)]
    times = [stamps[read] for read in reads]
    if max(behind) <= _LINE_ENDS:
        return times, ()
    unsure = [stamps[read] - floors[read] if more > _LINE_ENDS else 0 for read, more in zip(reads, behind, strict=True)]
    return times, unsure if any(unsure) else ()
