"""The published queries, and others that engines are measured by, in the dialect of every engine: equal numbers.

A mean is the sum in the order of repetition, divided; a deviation is Welford's, of n - 1: both to the bit. A quantile
is Hyndman and Fan's seventh, whose interpolation engines round in their own ways: the same but for the last digit.
Engines' own functions differ: PostgreSQL's deviation and ClickHouse's mean in the last digits, and ClickHouse's
`median` and `medianExact` in the first.
"""

from collections.abc import Iterable
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse import queries
from benchhouse.warehouse.engine import TableEngine
from benchhouse.warehouse.points import (
    CLICKHOUSE_MEAN,
    clickhouse_key,
    clickhouse_points,
    postgres_key,
    postgres_points,
)
from benchhouse.warehouse.query import Result, Warehouse, own

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


QUANTILES = """
SELECT run_id, benchmark_case_id, metric, stat, unit, count(*) AS n, quantile_cont("value", 0.5) AS p50,
       quantile_cont("value", 0.9) AS p90
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = ''
  AND list_contains(CAST($runs AS VARCHAR[]), run_id)
GROUP BY run_id, benchmark_case_id, metric, stat, unit ORDER BY run_id, benchmark_case_id, metric, stat, unit
""".strip()

_PG_BY_POINT = f"{postgres_key('target_name')}, {postgres_key('point')}, instance_digest"
_CH_BY_POINT = f"{clickhouse_key('target_name')}, {clickhouse_key('point')}, instance_digest"
_PG_POINTS = f"""
{postgres_points("t.run_id = ANY(%(runs)s)")}
ORDER BY run_id, {_PG_BY_POINT}, metric, stat, unit, direction NULLS FIRST
""".strip()
_CH_POINTS = f"""
{clickhouse_points("has({runs:Array(String)}, t.run_id)")}
ORDER BY run_id, {_CH_BY_POINT}, metric, stat, unit, direction NULLS FIRST
""".strip()
_PG_TRIALS = f"""
SELECT * FROM trial_fact WHERE run_id = ANY(%(runs)s)
ORDER BY run_id, warmup DESC, {_PG_BY_POINT}, repetition, trial_id
""".strip()
_CH_TRIALS = f"""
SELECT * FROM trial_fact WHERE has({{runs:Array(String)}}, run_id)
ORDER BY run_id, warmup DESC, {_CH_BY_POINT}, repetition, trial_id
""".strip()

_PG_PIVOT = """
WITH sides AS (
  SELECT scope, series, phase, node_name, unit,
         avg(avg ORDER BY trial_id) FILTER (WHERE run_id = %(base)s) AS base,
         avg(avg ORDER BY trial_id) FILTER (WHERE run_id = %(run)s) AS now,
         count(*) FILTER (WHERE run_id = %(base)s) AS n_base, count(*) FILTER (WHERE run_id = %(run)s) AS n_now
  FROM telemetry_slice_fact
  WHERE NOT warmup AND outcome = 'succeeded' AND (phase = 'steady' OR phase = 'trial')
    AND run_id IN (%(base)s, %(run)s)
  GROUP BY scope, series, phase, node_name, unit
)
SELECT scope, series, phase, node_name, unit, base, now, n_base, n_now,
       (now - base) / nullif(abs(base), 0) AS change
FROM sides WHERE n_base > 0 AND n_now > 0
ORDER BY abs((now - base) / nullif(abs(base), 0)) DESC NULLS LAST, scope, series, phase, node_name, unit
LIMIT 50
""".strip()


def _ch_side(run: str) -> str:
    ordered = f"arraySort(groupArrayIf((trial_id, assumeNotNull(avg)), run_id = {{{run}:String}} AND avg IS NOT NULL))"
    return f"arrayMap(one -> one.2, {ordered})"


_CH_PIVOT = f"""
WITH sides AS (
  SELECT scope, series, phase, node_name, unit, {_ch_side("base")} AS bases, {_ch_side("run")} AS nows,
         countIf(run_id = {{base:String}}) AS n_base, countIf(run_id = {{run:String}}) AS n_now
  FROM telemetry_slice_fact
  WHERE NOT warmup AND outcome = 'succeeded' AND (phase = 'steady' OR phase = 'trial')
    AND run_id IN ({{base:String}}, {{run:String}})
  GROUP BY scope, series, phase, node_name, unit
), means AS (
  SELECT *, if(empty(bases), NULL, {CLICKHOUSE_MEAN.format("bases")}) AS base,
         if(empty(nows), NULL, {CLICKHOUSE_MEAN.format("nows")}) AS now
  FROM sides
)
SELECT scope, series, phase, node_name, unit, base, now, n_base, n_now,
       (now - base) / nullIf(abs(base), 0) AS change
FROM means WHERE n_base > 0 AND n_now > 0
ORDER BY abs((now - base) / nullIf(abs(base), 0)) DESC NULLS LAST, scope, series, phase, node_name, unit
LIMIT 50
""".strip()

_PG_REGRESSION = """
SELECT instance_digest, metric, stat, unit, direction,
       array_agg(value ORDER BY repetition, trial_id) FILTER (WHERE run_id = %(base)s) AS base,
       array_agg(value ORDER BY repetition, trial_id) FILTER (WHERE run_id = %(run)s) AS now
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = '' AND direction IS NOT NULL
  AND run_id IN (%(base)s, %(run)s)
GROUP BY instance_digest, metric, stat, unit, direction
ORDER BY instance_digest, metric, stat, unit, direction
""".strip()

_CH_LIST = "arrayMap(one -> one.3, arraySort(groupArrayIf((repetition, trial_id, assumeNotNull(value)), {})))"
_CH_REGRESSION = f"""
SELECT instance_digest, metric, stat, unit, direction,
       {_CH_LIST.format("run_id = {base:String}")} AS base, {_CH_LIST.format("run_id = {run:String}")} AS now
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND window = '' AND direction IS NOT NULL
  AND run_id IN ({{base:String}}, {{run:String}})
GROUP BY instance_digest, metric, stat, unit, direction
ORDER BY instance_digest, metric, stat, unit, direction
""".strip()

_PG_RECENT = """
SELECT run_id, stat, unit, direction, array_agg(value ORDER BY repetition, trial_id) AS "values"
FROM measurement_fact
WHERE metric = %(metric)s AND benchmark_case_id = %(case)s AND outcome = 'succeeded' AND NOT warmup
  AND scope = 'trial' AND "window" = '' AND run_id = ANY(%(runs)s)
GROUP BY run_id, stat, unit, direction ORDER BY run_id, stat, unit, direction NULLS FIRST
""".strip()

_CH_RECENT = f"""
SELECT run_id, stat, unit, direction, {_CH_LIST.format("1")} AS values
FROM measurement_fact
WHERE metric = {{metric:String}} AND benchmark_case_id = {{case:String}} AND outcome = 'succeeded' AND NOT warmup
  AND scope = 'trial' AND window = '' AND has({{runs:Array(String)}}, run_id)
GROUP BY run_id, stat, unit, direction ORDER BY run_id, stat, unit, direction NULLS FIRST
""".strip()


def _translated(sql: str, engine: str) -> str:
    """Queries that differ in how they name their parameters and nothing else."""
    runs, value = "list_contains(CAST($runs AS VARCHAR[]), run_id)", '"value"'
    if engine == "postgresql":
        sql = sql.replace(runs, "run_id = ANY(%(runs)s)")
        return _replaced(sql, f"quantile_cont({value}, {{}})", f"percentile_cont({{}}) WITHIN GROUP (ORDER BY {value})")
    sql = sql.replace(runs, "has({runs:Array(String)}, run_id)")
    return _replaced(sql, f"quantile_cont({value}, {{}})", f"quantileExactInclusive({{}})({value})")


def _replaced(sql: str, old: str, new: str) -> str:
    for share in ("0.5", "0.9"):
        sql = sql.replace(old.format(share), new.format(share))
    return sql


_DUCKDB = {
    "points": queries.POINTS,
    "trials": queries.TRIALS,
    "failures": queries.FAILURES,
    "pivot": PIVOT,
    "regression": REGRESSION,
    "recent": RECENT,
    "quantiles": QUANTILES,
}
_SAME = ("failures", "quantiles")
PUBLISHED: dict[str, dict[str, str]] = {
    "duckdb": _DUCKDB,
    "postgresql": {
        "points": _PG_POINTS,
        "trials": _PG_TRIALS,
        "pivot": _PG_PIVOT,
        "regression": _PG_REGRESSION,
        "recent": _PG_RECENT,
        **{name: _translated(_DUCKDB[name], "postgresql") for name in _SAME},
    },
    "clickhouse": {
        "points": _CH_POINTS,
        "trials": _CH_TRIALS,
        "pivot": _CH_PIVOT,
        "regression": _CH_REGRESSION,
        "recent": _CH_RECENT,
        **{name: _translated(_DUCKDB[name], "clickhouse") for name in _SAME},
    },
}
"""Dialect, query, its text."""

PARAMETERS = {"pivot": ("base", "run"), "regression": ("base", "run"), "recent": ("metric", "case", "runs")}
"""What a query takes; those that are not here take `runs`."""


def dialect_of(engine: TableEngine) -> str:
    scheme = engine.name.partition(":")[0]
    return scheme if scheme in PUBLISHED else "duckdb"


def ask(engine: TableEngine, name: str, parameters: dict[str, Any]) -> Result:
    """The answer of an engine to a published query."""
    if name not in _DUCKDB:
        raise BenchError(f"no published query '{name}'", f"There are: {', '.join(_DUCKDB)}")
    dialect = dialect_of(engine)
    sql = PUBLISHED[dialect][name]
    given = {key: value for key, value in parameters.items() if key != "runs" or "runs" in sql}
    result = engine.query(sql, given, runs=runs_named(parameters), name=name)
    if dialect == "clickhouse":  # which has no list that is null
        result.rows[:] = [tuple(None if value == [] and name == "regression" else value for value in row)
                          for row in result.rows]  # fmt: skip
    return result


def runs_named(parameters: dict[str, Any]) -> Iterable[str]:
    """The runs that a published query is about."""
    return parameters.get("runs") or [parameters["base"], parameters["run"]]
