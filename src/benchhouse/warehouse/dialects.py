"""The published queries in the dialect of every engine: the same rows give the same numbers.

A mean is the sum in the order of repetition, divided; a deviation is Welford's, of n - 1: both to the bit. A quantile
is Hyndman and Fan's seventh, whose interpolation engines round in their own ways: the same but for the last digit.
Engines' own functions differ: PostgreSQL's deviation and ClickHouse's mean in the last digits, and ClickHouse's
`median` and `medianExact` in the first.
"""

# ruff: noqa: S608 - the names in these texts are our own

from collections.abc import Iterable
from typing import Any

from benchhouse.schema.errors import BenchError
from benchhouse.warehouse import queries
from benchhouse.warehouse.engine import Engine
from benchhouse.warehouse.query import Result

QUANTILES = """
SELECT run_id, benchmark_case_id, metric, stat, unit, count(*) AS n, quantile_cont("value", 0.5) AS p50,
       quantile_cont("value", 0.9) AS p90
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = ''
  AND list_contains(CAST($runs AS VARCHAR[]), run_id)
GROUP BY run_id, benchmark_case_id, metric, stat, unit ORDER BY run_id, benchmark_case_id, metric, stat, unit
""".strip()

_KEYS = (
    "scenario", "experiment", "target_name", "point", "axes", "target", "parameters", "benchmark_case_id",
    "workload_spec_digest",
)  # fmt: skip

_PG_POINTS = f"""
WITH grouped AS (
  SELECT t.run_id, t.instance_digest, {", ".join(f"min(t.{key}) AS {key}" for key in _KEYS)},
         string_agg(DISTINCT t.executor, ', ' ORDER BY t.executor) AS executor,
         m.metric, m.stat, m.unit, m.direction, count(*) AS n,
         avg(m.value ORDER BY t.repetition, t.trial_id) AS mean,
         benchhouse.deviation(m.value ORDER BY t.repetition, t.trial_id) AS stdev,
         min(m.value) AS min, max(m.value) AS max,
         array_agg(m.value ORDER BY t.repetition, t.trial_id) AS "values",
         array_agg(t.trial_id ORDER BY t.repetition, t.trial_id) AS trials, CAST(sum(m.n) AS BIGINT) AS samples
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE t.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
    AND t.run_id = ANY(%(runs)s)
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT run_id, scenario, experiment, target_name, point, axes, target, parameters, instance_digest,
       benchmark_case_id, workload_spec_digest, executor, metric, stat, unit, direction, n, mean, stdev, min, max,
       "values", trials, samples
FROM grouped
ORDER BY run_id, target_name, point, instance_digest, metric, stat, unit, direction NULLS FIRST
""".strip()

_CH_MEAN = "arrayFold((a, x) -> a + x, {0}, toFloat64(0)) / length({0})"
_CH_DEVIATION = (
    "if(n < 2, NULL, sqrt(tupleElement(arrayFold((a, x) -> (a.1 + 1, a.2 + (x - a.2) / (a.1 + 1), "
    "a.3 + (x - (a.2 + (x - a.2) / (a.1 + 1))) * (x - a.2)), list, (toFloat64(0), toFloat64(0), toFloat64(0))), 3) "
    "/ (n - 1)))"
)
_CH_POINTS = f"""
WITH grouped AS (
  SELECT t.run_id AS run_id, t.instance_digest AS instance_digest,
         {", ".join(f"any(t.{key}) AS {key}" for key in _KEYS)},
         arrayStringConcat(arraySort(groupUniqArray(t.executor)), ', ') AS executor,
         m.metric AS metric, m.stat AS stat, m.unit AS unit, m.direction AS direction, count() AS n,
         arraySort(groupArray((t.repetition, t.trial_id, assumeNotNull(m.value)))) AS both,
         arrayMap(one -> one.3, both) AS list, arrayMap(one -> one.2, both) AS trials, sum(m.n) AS samples
  FROM trial_fact AS t JOIN measurement_fact AS m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE t.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m.window = ''
    AND has({{runs:Array(String)}}, t.run_id)
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT run_id, scenario, experiment, target_name, point, axes, target, parameters, instance_digest,
       benchmark_case_id, workload_spec_digest, executor, metric, stat, unit, direction, n,
       {_CH_MEAN.format("list")} AS mean, {_CH_DEVIATION} AS stdev, arrayMin(list) AS min, arrayMax(list) AS max,
       list AS values, trials, samples
FROM grouped
ORDER BY run_id, target_name, point, instance_digest, metric, stat, unit, direction NULLS FIRST
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
  SELECT *, if(empty(bases), NULL, {_CH_MEAN.format("bases")}) AS base,
         if(empty(nows), NULL, {_CH_MEAN.format("nows")}) AS now
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
    "pivot": queries.PIVOT,
    "regression": queries.REGRESSION,
    "recent": queries.RECENT,
    "quantiles": QUANTILES,
}
_SAME = ("trials", "failures", "quantiles")
PUBLISHED: dict[str, dict[str, str]] = {
    "duckdb": _DUCKDB,
    "postgresql": {
        "points": _PG_POINTS,
        "pivot": _PG_PIVOT,
        "regression": _PG_REGRESSION,
        "recent": _PG_RECENT,
        **{name: _translated(_DUCKDB[name], "postgresql") for name in _SAME},
    },
    "clickhouse": {
        "points": _CH_POINTS,
        "pivot": _CH_PIVOT,
        "regression": _CH_REGRESSION,
        "recent": _CH_RECENT,
        **{name: _translated(_DUCKDB[name], "clickhouse") for name in _SAME},
    },
}
"""Dialect, query, its text."""

PARAMETERS = {"pivot": ("base", "run"), "regression": ("base", "run"), "recent": ("metric", "case", "runs")}
"""What a query takes; those that are not here take `runs`."""


def dialect_of(engine: Engine) -> str:
    scheme = engine.name.partition(":")[0]
    return scheme if scheme in PUBLISHED else "duckdb"


def ask(engine: Engine, name: str, parameters: dict[str, Any]) -> Result:
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
