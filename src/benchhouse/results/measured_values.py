"""Numbers of all runs as one table, page by page, for programs that plot them: `ws.measured(metric="qps")`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from benchhouse.schema.errors import BenchError
from benchhouse.schema.experiment import Direction
from benchhouse.schema.json_text import read_json
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.points import duckdb_points
from benchhouse.warehouse.query import Warehouse, own

ALL = "*"
"""Value of a filter that means no filter, because a dashboard's variable has no empty value."""
_MOST_RUNS = 200  # runs that are read for a page
_MOST_AT_ONCE = 32
_AFTER_ALL = "~"  # sorts after every digest of an instance
_KEY = ("run_id", "instance_digest", "metric", "stat", "unit")
_OF_TRIALS = ("scenario", "experiment", "run_id")
_TRIALS = " AND ".join(
    [
        *(f"(${name} = '' OR t.{name} = ${name})" for name in _OF_TRIALS),
        "($since = '' OR t.started >= TRY_CAST($since AS TIMESTAMP))",
        "($until = '' OR t.started < TRY_CAST($until AS TIMESTAMP))",
    ]
)
_BEHIND = f"({', '.join(_KEY[1:])}) > ({', '.join(f'$after_{name}' for name in _KEY[1:])})"
_AFTER = f"(run_id < $after_run_id OR (run_id = $after_run_id AND {_BEHIND}))"
MEASURED = own(
    f"""
SELECT p.*, s.started FROM ({duckdb_points(_TRIALS)}) p
JOIN (SELECT run_id, min(started) AS started FROM trial_fact GROUP BY run_id) s USING (run_id)
WHERE ($metric = '' OR metric = $metric) AND ($stat = '' OR stat = $stat)
  AND ($after_run_id = '' OR {_AFTER})
ORDER BY run_id DESC, {", ".join(_KEY[1:])} LIMIT $limit
""".strip()  # noqa: S608 - the names in it are our own
)


class MeasuredFilters(TypedDict, total=False):
    """Which numbers are requested; empty values and `*` mean all."""

    scenario: str | None
    experiment: str | None
    run_id: str | None
    metric: str | None
    stat: str | None


@dataclass(frozen=True)
class PointStatistic:
    """One statistic of one metric at one point of a run, over its successful trials."""

    time: str
    """When the run started, UTC."""
    run_id: str
    scenario: str
    experiment: str
    case: str
    """Scenario and point, or target; plotted as one line."""
    point: str
    target_name: str | None
    metric: str
    stat: str
    unit: str
    direction: Direction | None
    value: float
    """Mean over the trials."""
    stdev: float | None
    min: float
    max: float
    n: int
    executor: str
    benchmark_case_id: str
    instance_digest: str


@dataclass(frozen=True)
class MeasuredPage:
    """Some numbers, the newest runs first, and where the next page begins."""

    rows: list[PointStatistic]
    cursor: str | None
    """The value of `after` for the next page, which may be shorter or empty, because a page covers the numbers of at
    most 200 runs. None: there is no next page.
    """


def measured(
    workspace: WorkspaceFolder, filters: MeasuredFilters, since: str, until: str, after: str | None, limit: int
) -> MeasuredPage:
    """Return a page of numbers, without INVALID ones, failed trials, and warm-ups. Times are in the format of the
    tables.
    """
    parameters: dict[str, Any] = {name: _given(filters, name) for name in (*_OF_TRIALS, "metric", "stat")}
    parameters |= {"since": since, "until": until, "limit": limit + 1} | _place(after)
    with Warehouse.open(workspace) as warehouse:
        runs = _runs(warehouse, parameters)
        rows, looked, at_once = list[dict[str, Any]](), 0, 1
        while looked < min(len(runs), _MOST_RUNS) and len(rows) < limit:
            some = runs[looked : looked + at_once]
            rows += warehouse.query(MEASURED, parameters, runs=some, name="measured").dicts()
            looked, at_once = looked + len(some), min(2 * at_once, _MOST_AT_ONCE)
    last: list[str] | None = None
    if len(rows) > limit or (len(rows) == limit and looked < len(runs)):
        last = [rows[limit - 1][name] for name in _KEY]
    elif looked < len(runs):
        last = [runs[looked - 1], _AFTER_ALL, "", "", ""]
    cursor = json.dumps(last, ensure_ascii=False) if last else None
    return MeasuredPage([_row(row) for row in rows[:limit]], cursor)


def _runs(warehouse: Warehouse, asked: Mapping[str, Any]) -> list[str]:
    """Return runs that may have such numbers, the newest first, according to the catalog."""
    since, until, after = asked["since"][:19], asked["until"][:19], asked["after_run_id"]
    over = asked["after_instance_digest"] == _AFTER_ALL
    return sorted(
        (
            entry.run_id
            for entry in warehouse.catalog.runs()
            if asked["run_id"] in ("", entry.run_id)
            and asked["scenario"] in ("", entry.scenario)
            and (not after or entry.run_id < after or (entry.run_id == after and not over))
            and entry.ended[:19] >= since
            and (not until or entry.started[:19] <= until)
        ),
        reverse=True,
    )


def _given(filters: MeasuredFilters, name: str) -> str:
    value = str(filters.get(name) or "")
    return "" if value == ALL else value


def _place(after: str | None) -> dict[str, str]:
    names = [f"after_{name}" for name in _KEY]
    if not after:
        return dict.fromkeys(names, "")
    try:
        values = read_json(after)
    except ValueError:
        values = None
    if not isinstance(values, list) or len(values) != len(names) or not all(isinstance(item, str) for item in values):
        raise BenchError("after: this is no cursor of a page", "take the cursor of the page before, as it is")
    return dict(zip(names, values, strict=True))


def _row(row: dict[str, Any]) -> PointStatistic:
    case = "/".join(filter(None, (row["scenario"], row["point"] or row["target_name"])))
    named = {name: row[name] for name in PointStatistic.__dataclass_fields__ if name in row}
    return PointStatistic(time=f"{row['started']}", case=case, value=row["mean"], **named)
