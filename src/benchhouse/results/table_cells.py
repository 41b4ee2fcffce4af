"""Each number of a table of points as a traceable cell."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from benchhouse.schema.query import Cell, cell_ref
from benchhouse.warehouse.query import Result

_KEY = ("run_id", "instance_digest", "metric", "stat")


def make_cells(
    result: Result, column: str = "mean", rows: Sequence[Mapping[str, Any]] | None = None, *, published: bool = True
) -> list[Cell]:
    """Return one cell per row of a `points` result in which `column` is a number; `rows` selects rows, by default all.

    Refs of numbers that will not be `published` name their run and point, so they are also traceable.
    """
    query = result.spec.digest()
    rows = result.dicts() if rows is None else rows
    key_of = itemgetter(*_KEY)
    keys = Counter(map(key_of, rows))
    cells = []
    for row in rows:
        if row[column] is None:
            continue
        key = key_of(row)
        picked = dict(zip(_KEY, key, strict=True))
        if keys[key] > 1:  # a metric whose unit changed between trials
            picked["unit"] = row["unit"]
        ref = cell_ref(query, picked, column) if published else ref_of(*key)
        own = {name: row[name] for name in ("unit", "n", "trials")}
        cells.append(Cell(ref=ref, query=query, key=picked, column=column, value=row[column], **own))
    return cells


def ref_of(run_id: str, instance_digest: str | None, metric: str, stat: str) -> str:
    """Return the reference for `bench trace` to a number of a run, whether or not a report has published it; without an
    instance, to the numbers of all its points.
    """
    points = f"{run_id}:instance={instance_digest}" if instance_digest else run_id
    return f"{points}:{metric}.{stat}"
