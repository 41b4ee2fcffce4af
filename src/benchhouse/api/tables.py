"""The warehouse's tables for people: what there is, column by column."""

from difflib import get_close_matches
from typing import Any

from benchhouse.schema.errors import BenchError


def describe_tables(name: str | None = None) -> dict[str, dict[str, Any]]:
    """The curated tables, or one: what a row is, and every column with type and meaning."""
    from benchhouse.warehouse.tables import TABLES

    if name is not None and name not in TABLES:
        close = get_close_matches(name, TABLES, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(TABLES)}"
        raise BenchError(f"no table '{name}'", hint)
    return {
        table.name: {
            "description": table.description,
            "grain": table.grain,
            "source": table.source or None,
            "columns": [{"name": item.name, "type": item.kind, "meaning": item.description} for item in table.columns],
        }
        for table in TABLES.values()
        if name in (None, table.name)
    }
