"""The queries behind summaries, reports and comparisons. Their text is pinned with every number that is published."""

# ruff: noqa: S608 - the names in these texts are our own

from collections.abc import Iterable

from benchhouse.warehouse.natural_order import duckdb_key
from benchhouse.warehouse.points import duckdb_points
from benchhouse.warehouse.query import Result, Warehouse, own

_THESE_RUNS = "list_contains(CAST($runs AS VARCHAR[]), {}run_id)"
_BY_POINT = f"{duckdb_key('target_name')}, {duckdb_key('point')}, instance_digest"
POINTS = own(
    f"""
{duckdb_points(_THESE_RUNS.format("t."))}
ORDER BY run_id, {_BY_POINT}, metric, stat, unit, direction NULLS FIRST
""".strip()
)

TRIALS = own(
    f"""
SELECT * FROM trial_fact
WHERE {_THESE_RUNS.format("")}
ORDER BY run_id, warmup DESC, {_BY_POINT}, repetition, trial_id
""".strip()
)

FAILURES = own(
    """
SELECT run_id, trial_id, target_name, point, repetition, warmup, attempt, outcome, failure_code, failure_message,
       warnings, host, folder
FROM trial_fact
WHERE outcome <> 'succeeded' AND list_contains(CAST($runs AS VARCHAR[]), run_id)
ORDER BY run_id, started, trial_id
""".strip()
)


def points(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """One row per instance, metric and stat of each run: n, mean, spread, the values and the trials behind them.

    Only trials that succeeded and were no warm-up count, so no invalid one does; `values` and `trials` are ordered
    by repetition.
    """
    return _of_runs(warehouse, "points", POINTS, run_ids)


def trials(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Every trial of these runs, all columns of trial_fact."""
    return _of_runs(warehouse, "trials", TRIALS, run_ids)


def failures(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """The trials that did not succeed, the invalid ones among them, and why."""
    return _of_runs(warehouse, "failures", FAILURES, run_ids)


def _of_runs(warehouse: Warehouse, name: str, sql: str, run_ids: Iterable[str]) -> Result:
    runs = sorted(set(run_ids))
    return warehouse.query(sql, {"runs": runs}, runs=runs, name=name)


PIVOT = own(
    """
WITH sides AS (
  SELECT scope, series, phase, node_name, unit,
         list_avg(list(avg ORDER BY trial_id) FILTER (WHERE run_id = $base)) AS base,
         list_avg(list(avg ORDER BY trial_id) FILTER (WHERE run_id = $run)) AS now,
         count(*) FILTER (WHERE run_id = $base) AS n_base, count(*) FILTER (WHERE run_id = $run) AS n_now
  FROM telemetry_slice_fact
  WHERE NOT warmup AND outcome = 'succeeded' AND (phase = 'steady' OR phase = 'trial')
  GROUP BY scope, series, phase, node_name, unit
)
SELECT scope, series, phase, node_name, unit, base, now, n_base, n_now,
       (now - base) / nullif(abs(base), 0) AS change
FROM sides WHERE n_base > 0 AND n_now > 0
ORDER BY abs((now - base) / nullif(abs(base), 0)) DESC NULLS LAST, scope, series, phase, node_name, unit
LIMIT 50
""".strip()
)

REGRESSION = own(
    """
SELECT instance_digest, metric, stat, unit, direction,
       list("value" ORDER BY repetition, trial_id) FILTER (WHERE run_id = $base) AS base,
       list("value" ORDER BY repetition, trial_id) FILTER (WHERE run_id = $run) AS now
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = '' AND direction IS NOT NULL
GROUP BY instance_digest, metric, stat, unit, direction
ORDER BY instance_digest, metric, stat, unit, direction
""".strip()
)

RECENT = own(
    """
SELECT run_id, stat, unit, direction, list("value" ORDER BY repetition, trial_id) AS "values"
FROM measurement_fact
WHERE metric = $metric AND benchmark_case_id = $case AND outcome = 'succeeded' AND NOT warmup AND scope = 'trial'
  AND "window" = ''
GROUP BY run_id, stat, unit, direction ORDER BY run_id, stat, unit, direction NULLS FIRST
""".strip()
)


def pivot(warehouse: Warehouse, base: str, run: str) -> Result:
    """What monitors saw in `run` against `base`: the scopes and series whose mean moved most, joined on identity."""
    return warehouse.query(PIVOT, {"base": base, "run": run}, runs=[base, run], name="pivot")


def regression(warehouse: Warehouse, base: str, run: str) -> Result:
    """Every metric of every point, `run` beside `base`, value by value; a metric in two units is two rows."""
    return warehouse.query(REGRESSION, {"base": base, "run": run}, runs=[base, run], name="regression")


def recent_values(warehouse: Warehouse, case: str, metric: str, run_ids: Iterable[str]) -> Result:
    """One metric of one case, run by run: what a detector of regressions looks at."""
    return warehouse.query(RECENT, {"metric": metric, "case": case}, runs=sorted(set(run_ids)), name="recent")
