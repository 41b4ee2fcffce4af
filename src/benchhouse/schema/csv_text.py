"""Rows of CSV files that spreadsheets open: text that they would take for a formula stays text."""

from collections.abc import Iterable, Mapping
from typing import Any

_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
_MARK = "'"  # what spreadsheets write before a text that is one


def csv_cells(row: Iterable[Any]) -> list[Any]:
    """The row as it may be written; numbers, as text or not, stay as they are."""
    return [_MARK + cell if isinstance(cell, str) and _is_formula(cell) else cell for cell in row]


def csv_values(row: Mapping[str, str]) -> dict[str, str]:
    """The reverse, of a row that was read."""
    return {key: cell[1:] if cell[:1] == _MARK and _is_formula(cell[1:]) else cell for key, cell in row.items()}


def _is_formula(text: str) -> bool:
    if not text.startswith(_BEGINNINGS):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return text[0] in "\t\r"
