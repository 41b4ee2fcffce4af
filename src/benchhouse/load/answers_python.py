"""What is computed from the bytes and marks of an answer, in Python. `answers.py` defines when it is used.

A mark is what the engine knows about one read. From the poller it has four numbers of 64 bits: where the read ends in
the data, when its last byte arrived, the earliest time at which its first byte can have arrived, and when it was read.
The marks of an exchange have three numbers; the first is the size of the body after the read.
"""

import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise, repeat, takewhile
from operator import add, ge, le, sub

READ, MARK = struct.Struct("=4q"), struct.Struct("=3q")
_known_sizes = {b"%x" % size: size for size in range(1, 4096)}  # of chunks, in the spelling that tokens have
_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,7})\r\n")  # of a chunk, in any spelling
_LARGEST = (1 << 63) - 1
_LINE_ENDS = 3  # bytes that may follow the end of an event before the next one starts
_NOT_PLAIN = re.compile(rb'["\\\n]')
_SHORT = 40
_AT_A_LOOK = 1 << 14  # bytes: searching the whole remainder again and again would take quadratic time


def whole_chunks(data: bytes, reads: bytes, before: int, /) -> tuple[int, bytes, bytes]:
    """Take the whole chunks at the beginning, which are most of a token stream.

    Return where the first incomplete or different chunk starts, the content before it, and the marks of the reads that
    end before it, for a body that had `before` bytes. Raises ValueError if `reads` is not a whole number of reads, or
    if those reads do not end in ascending order, and OverflowError if the body would have 2^63 bytes or more.
    """
    if len(reads) % READ.size:
        raise ValueError(f"expected rows of {READ.size} bytes")
    lines = data.split(b"\r\n")
    whole = (len(lines) - 1) // 2  # pairs of a size and a content, each with its line end
    contents = lines[1 : 2 * whole : 2]
    sizes, lengths = [*map(_known_sizes.get, lines[0 : 2 * whole : 2])], [*map(len, contents)]
    if sizes != lengths:  # a size that is not known, a line end inside of a chunk, or the last chunk
        whole = next(at for at, (size, length) in enumerate(zip(sizes, lengths, strict=True)) if size != length)
    content_ends = list(accumulate(lengths[:whole]))
    framing = [len(size) + 4 for size in lines[0 : 2 * whole : 2]]
    chunk_ends = list(map(add, content_ends, accumulate(framing)))
    at = chunk_ends[-1] if whole else 0
    del contents[whole:]
    while (size := _SIZE_LINE.match(data, at)) and (length := int(size[1], 16)):  # unknown size, or contains a line end
        end = size.end() + length
        if not data.startswith(b"\r\n", end):
            break
        at = end + 2
        contents.append(data[size.end() : end])
        content_ends.append(length + (content_ends[-1] if content_ends else 0))
        chunk_ends.append(at)
    within = list(takewhile(lambda read: read[0] <= at, READ.iter_unpack(reads)))
    if not _is_ascending([0, *(read[0] for read in within)]):
        raise ValueError("reads must end in ascending order, from 0 on")
    content = b"".join(contents)
    if before + len(content) > _LARGEST:
        raise OverflowError("a result has more than 64 bits")
    marks = (
        MARK.pack(before + _content_up_to(end, chunk_ends, content_ends), stamp, floor)
        for end, stamp, floor, _ in within
    )
    return at, content, b"".join(marks)


def _is_ascending(values: "Sequence[int] | array[int]") -> bool:
    return all(map(le, values, values[1:]))


def _content_up_to(end: int, chunk_ends: Sequence[int], content_ends: Sequence[int]) -> int:
    """Return the number of content bytes among the first `end` bytes of whole chunks."""
    whole = bisect_right(chunk_ends, end)
    before, start = (content_ends[whole - 1], chunk_ends[whole - 1]) if whole else (0, 0)
    if whole == len(chunk_ends):
        return before
    size = content_ends[whole] - before
    begins = chunk_ends[whole] - size - 2
    return before + min(max(end - begins, 0), size) if end > start else before


def alike(body: bytes, at: int, begin: bytes, end: bytes, /) -> tuple[int, bytes]:
    """Skip the events from `at` on that consist of `begin`, a text, and `end`.

    Return where the first different event starts, and for each skipped one the place in `body` of the line end that
    ends its first line. Most events of a stream have this form, and splitting at the constant part between two texts
    takes a tenth of the time of reading them one by one. A text that contains a quote, a backslash, or a line end can
    be anything, and ends the series. `end` must start with one of these three and contain a line end; otherwise
    ValueError is raised, as for a negative `at`.
    """
    if at < 0 or not _NOT_PLAIN.match(end):
        raise ValueError("`end` must close a text, and `at` be positive")
    glue, line_end, places = end + begin, end.index(b"\n"), array("q")
    while body.startswith(begin, at):
        first = at + len(begin)
        between = _split(body[first : first + _AT_A_LOOK], glue)[:-1]
        texts = between
        if b"" in texts or _NOT_PLAIN.search(b"".join(texts)):
            texts = list(takewhile(lambda text: text and not _NOT_PLAIN.search(text), texts))
        reached = list(accumulate([len(text) + len(glue) for text in texts], initial=first))
        places.extend([place - len(glue) + line_end for place in reached[1:]])
        at = reached[-1] - len(begin)
        close = _NOT_PLAIN.search(body, reached[-1])  # end of the last text, which a different kind of event follows
        if not close or close.start() == reached[-1] or not body.startswith(end, close.start()):
            break
        places.append(close.start() + line_end)
        at = close.start() + len(end)
    return at, places.tobytes()


def _split(data: bytes, glue: bytes) -> list[bytes]:
    """Do the same as `data.split(glue)` in a third of the time for a long glue, by searching for a short piece of
    it."""
    short = glue[:_SHORT]
    parts = data.split(short)
    if len(parts) - 1 != data.count(glue):  # the piece also occurs outside of the glue
        return data.split(glue)
    more = len(glue) - len(short)
    return [parts[0], *(part[more:] for part in parts[1:])]


def arrivals(ends: "array[int]", marks: "array[int]", /) -> tuple[bytes, bytes]:
    """Return the stamp of the read that completed each event, and how much earlier each event may have arrived.

    The second result is empty if each event was the last of its read, because its stamp is then its own. Raises
    ValueError if events or reads do not end in ascending order, IndexError if the last read ends before the last event,
    and OverflowError if a stamp and its floor are 2^63 or more apart.
    """
    if len(marks) % 3:
        raise ValueError(f"expected rows of {MARK.size} bytes")
    sizes, stamps, floors = marks[::3], marks[1::3], marks[2::3]
    if not _is_ascending(ends) or not _is_ascending(sizes):
        raise ValueError("events and reads must end in ascending order")
    if not ends:
        return b"", b""
    first = bisect_left(sizes, ends[0])
    reads: Sequence[int] = range(first, first + len(ends))  # each event has its own read, as most have
    behind = list(map(sub, sizes[first:], ends))
    if len(behind) < len(ends) or min(behind) < 0 or any(map(ge, sizes[first:], ends[1:])):
        reads = [bisect_left(sizes, end) for end in ends]
        behind = [sizes[read] - end for read, end in zip(reads, ends, strict=True)]
    times = array("q", [stamps[read] for read in reads])
    if max(behind) <= _LINE_ENDS:
        return times.tobytes(), b""
    unsure = [stamps[read] - floors[read] if more > _LINE_ENDS else 0 for read, more in zip(reads, behind, strict=True)]
    return times.tobytes(), array("q", unsure).tobytes() if any(unsure) else b""


def gaps(stamps: "array[int]", /) -> tuple[bytes, int, int]:
    """Return the gaps between consecutive stamps, the longest gap, and the sum of the absolute changes from gap to gap.

    A single stamp has no gaps. Raises OverflowError for stamps that are 2^63 or more apart.
    """
    between = array("q", [after - before for before, after in pairwise(stamps)])
    changes = [abs(after - before) for before, after in pairwise(between)]
    return between.tobytes(), max(between, default=0), sum(changes)


def sides(
    values: "array[int]", earlier: "array[int]", later: "array[int]", fine: int, /
) -> tuple[bytes, bytes, bytes, bytes]:
    """Split times that may be less by `earlier` and more by `later` (empty: by nothing).

    Return the times that are off by at most `fine`; and for the others, what was measured, the least that each can be,
    and the most. Raises ValueError if the lengths differ, and OverflowError for a result of more than 64 bits.
    """
    if len(earlier) != len(values) or (later and len(later) != len(values)):
        raise ValueError("each value needs how far it can be off")
    rows = list(zip(values, earlier, later or repeat(0), strict=False))
    doubts = [row for row in rows if row[1] > fine or row[2] > fine]
    sure = [value for value, less, more in rows if less <= fine and more <= fine]
    measured, least, most = (
        [value for value, _, _ in doubts],
        [max(value - less, 0) for value, less, _ in doubts],
        [value + more for value, _, more in doubts],
    )
    return (
        array("q", sure).tobytes(),
        array("q", measured).tobytes(),
        array("q", least).tobytes(),
        array("q", most).tobytes(),
    )


def bins(stamps: "array[int]", start: int, width: int, /) -> list[int]:
    """Return the bins that contain stamps, of this width and counted from `start`; neighbors in one bin list it once.

    Raises ValueError for a width below 1, and OverflowError for a stamp that is 2^63 or more from `start`.
    """
    if width < 1:
        raise ValueError("a bin has a width")
    since = array("q", [stamp - start for stamp in stamps])
    return [bin_ for bin_, _ in groupby(offset // width for offset in since)]
