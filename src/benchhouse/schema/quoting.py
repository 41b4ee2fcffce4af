"""Values and text from users, shortened for messages and without unprintable characters."""

import re
from collections.abc import Sequence
from typing import Any

MAX_QUOTED = 60
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def describe(value: Any) -> str:
    """Return a description of a value: `the text 'three'`, `a list`, `nothing (null)`."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {quote(value)}" if value else "empty text"
    if isinstance(value, int | float):
        return f"the number {shorten(str(value))}"
    return "a mapping" if isinstance(value, dict) else "a list"


def quote(text: str) -> str:
    """Return text in single quotes, shortened for messages, without unprintable characters."""
    return f"'{shorten(printable(text))}'"


def shorten(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 3] + "..."


def printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def visible(text: str) -> str:
    """Return text of many lines with control characters, such as terminal escapes, replaced by visible symbols."""
    return _CONTROLS.sub(lambda match: chr(0x2400 + ord(match[0])) if match[0] < " " else "\ufffd", text)


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Return `a, b and 3 more`; the whole list if it has at most `most` names."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
