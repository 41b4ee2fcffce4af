"""CSV rows that are safe to open in spreadsheets: text that looks like a formula stays text."""

from collections.abc import Iterable, Mapping
from typing import Any

_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
_MARK = "'"  # marks a cell as text in spreadsheets


def csv_cells(row: Iterable[Any]) -> list[Any]:
    """Return the row in the form to be written; numbers, also as text, are unchanged."""
    return [_MARK + cell if isinstance(cell, str) and _is_formula(cell) else cell for cell in row]


def csv_values(row: Mapping[str, str]) -> dict[str, str]:
    """Return a row that was read, without the marks of `csv_cells`."""
    return {key: cell[1:] if cell[:1] == _MARK and _is_formula(cell[1:]) else cell for key, cell in row.items()}


def _is_formula(text: str) -> bool:
    if not text.startswith(_BEGINNINGS):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return text[0] in "\t\r"
