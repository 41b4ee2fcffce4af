"""Names of nodes, as a batch system shortens them."""

import re
from collections.abc import Iterator

_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")  # a comma inside brackets separates numbers, not names
_RANGES = re.compile(r"\[([^\]]*)\]")


def expand(text: str) -> list[str]:
    """`a[1-3,07],b2` as a1, a2, a3, a07, b2; several brackets multiply, leading zeros stay."""
    return [name for item in _ITEM.findall(text) for name in _names(item)]


def _names(item: str) -> Iterator[str]:
    ranges = _RANGES.search(item)
    if ranges is None:
        yield item
        return
    for part in ranges[1].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from _names(f"{item[: ranges.start()]}{number:0{len(first)}d}{item[ranges.end() :]}")
