"""Lists that are cut for people: what is left out is always counted."""

from collections.abc import Sequence


def shortened(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`; the whole list where it is not longer than `most`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
