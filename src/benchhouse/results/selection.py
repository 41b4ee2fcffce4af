"""Selectors for the points of a run: `RUN:key=value,key=value`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchhouse.results import matching
from benchhouse.schema.errors import BenchError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Selector:
    """`RUN` or `RUN:key=value,key=value`: a run, and the points selected from it."""

    run: str
    filters: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        picked = ",".join(f"{key}={value}" for key, value in self.filters.items())
        return f"{self.run}:{picked}" if picked else self.run


def parse_selector(text: str) -> Selector:
    run, colon, rest = text.partition(":")
    if not run or (colon and not rest):
        raise BenchError(
            f"{text!r} selects nothing: expected RUN or RUN:key=value,key=value",
            hint="For example: bench compare @last-1 @last, or bench compare @last:index=hnsw @last:index=ivf",
        )
    filters: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = (item.strip() for item in part.partition("="))
        if not (key and equals and value):
            raise BenchError(f"{part!r} in {text!r} is not key=value")
        if key in filters:
            raise BenchError(f"{text!r} gives {key} twice")
        filters[key] = value
    return Selector(run, filters)


def select(rows: Iterable[Row], selector: Selector) -> list[Row]:
    """Return the rows of points that match every filter, on axes, target, or parameters. Raise BenchError if
    none does.
    """
    kept = list(rows)
    for key, wanted in selector.filters.items():
        looked: dict[tuple[Any, ...], Any] = {}  # once per instance: its rows differ only in the metric
        for row in kept:
            if (place := _instance(row)) not in looked:
                looked[place] = matching.look_up(matching.point_of(row), key)
        present = {matching.one_line(value) for value in looked.values() if value is not None}
        fit = {place for place, value in looked.items() if matching.fits(value, wanted)}
        kept = [row for row in kept if _instance(row) in fit]
        if not kept:
            known = f"it has {', '.join(sorted(present)[:8])}" if present else "no point has that key"
            raise BenchError(f"{selector}: no point with {key}={wanted}; {known}")
    return kept


def _instance(row: Row) -> tuple[Any, ...]:
    """Return the key of an instance with its axes, which may differ from run to run."""
    return row["run_id"], row["instance_digest"], str(row["axes"])
