"""What is computed from the bytes and marks of an answer: compiled if it could be built, otherwise in Python.

`_answers.c` and `answers_python.py` give the same results, and the same tests run on both. With
BENCHHOUSE_ENGINE=python in the environment, Python is always used, to find out whether a doubtful number or a crash
comes from the compiled part.
"""

import os
from array import array
from collections.abc import Callable

from benchhouse.load import answers_python
from benchhouse.schema.histogram import PreparedValues

try:
    from benchhouse.load import _answers
except ImportError:
    _answers = None  # type: ignore[assignment]

_compiled = None if os.environ.get("BENCHHOUSE_ENGINE") == "python" else _answers
_chosen = _compiled or answers_python

whole_chunks: Callable[[bytes, bytes, int], tuple[int, bytes, bytes]] = _chosen.whole_chunks
alike: Callable[[bytes, int, bytes, bytes], tuple[int, bytes]] = _chosen.alike
bins: "Callable[[array[int], int, int], list[int]]" = _chosen.bins


def arrivals(ends: "array[int]", marks: "array[int]") -> "tuple[array[int], array[int]]":
    """Return the stamp of the read that completed each event, and how much earlier each event may have arrived. The
    latter is empty if each event was the last of its read, because its stamp is then its own."""
    stamps, unsure = _chosen.arrivals(ends, marks)
    return array("q", stamps), array("q", unsure)


def gaps(stamps: "array[int]") -> "tuple[array[int], int, int]":
    """Return the gaps between consecutive stamps, the longest gap, and the sum of the absolute changes from gap to
    gap."""
    between, longest, changes = _chosen.gaps(stamps)
    return array("q", between), longest, changes


def sides(
    values: "array[int]", earlier: "array[int]", later: "array[int]", fine: int
) -> "tuple[array[int], array[int], array[int], array[int]]":
    """Split times that may be less by `earlier` and more by `later` (empty: by nothing). Return the times that are off
    by at most `fine`; and for the others, what was measured, the least that each can be, and the most."""
    sure, found, least, most = _chosen.sides(values, earlier, later, fine)
    return array("q", sure), array("q", found), array("q", least), array("q", most)


def measured(values: "array[int]") -> PreparedValues:
    """Do the same as `PreparedValues(values)`, which raises ValueError for a value out of range."""
    known = _compiled.measured(values) if _compiled else None
    return PreparedValues(values) if known is None else PreparedValues.known(*known)
