"""Points: one row per instance, metric, and stat of a run, with the interval of the mean, in every engine's dialect.

`*_points` is the body of the published query; `*_view` is the public view `points`, which adds standard error,
interval, and place. Means and deviations are computed from the ordered list, so that the same rows give the same bits
on any number of threads. Values for a part of a trial (with their own scope or window) are excluded.

Points are ordered by their numbers (`ef=2` before `ef=16`): `*_key` splits a text into numbers and the text between
them, and the list of these parts is the key. A number after `=` may have a sign, a fraction, and an exponent; elsewhere
it is only digits, because the 3 in `llama-3-8b` is not negative.
"""

# ruff: noqa: S608 - the names in these texts are our own

from collections.abc import Callable

from benchhouse.warehouse.run_tables import MEASUREMENT_FACT, TRIAL_FACT
from benchhouse.warehouse.table import Column, Table

_PARTS = "=-?[0-9]{1,18}(?:[.][0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?|[0-9]{1,18}|[^0-9=]+|="
_KEYS = (
    "scenario", "experiment", "target_name", "point", "axes", "target", "parameters", "benchmark_case_id",
    "workload_spec_digest",
)  # fmt: skip
_BEFORE_THE_MEAN = (
    "run_id, scenario, experiment, target_name, point, axes, target, parameters, instance_digest, "
    "benchmark_case_id, workload_spec_digest, executor, metric, stat, unit, direction, n"
)

POINTS_VIEW = Table(
    name="points",
    description="Numbers of the points of each run over its good trials, with standard error and 95% interval of the "
    "mean. A view over trial_fact and measurement_fact: failed trials, warm-ups, parts of a trial "
    "and numbers that can be off by more than is taken are left out.",
    grain="run x point x metric x statistic",
    columns=(
        Column("run_id", "text", "The run."),
        Column("scenario", "text", "Its scenario."),
        Column("experiment", "text", "Its experiment."),
        Column("target_name", "text", "Name of the target."),
        Column("point", "text", "What tells the point apart, as `ef=16`; empty where nothing varies."),
        Column("axes", "text", "The values on each axis, canonical JSON."),
        Column("target", "text", "The whole target, canonical JSON."),
        Column("parameters", "text", "The whole workload, canonical JSON."),
        Column("instance_digest", "text", "Digest of case and target."),
        Column("benchmark_case_id", "text", "Digest of experiment, version and workload."),
        Column("workload_spec_digest", "text", "Digest of the workload."),
        Column("executor", "text", "What ran the trials; several joined by a comma."),
        Column("place", "integer", "Position among the points of the run, by the numbers of its axes."),
        Column("metric", "text", "Name of the metric."),
        Column("stat", "text", "`value`, or which statistic of a distribution within each trial."),
        Column("unit", "text", "Unit of the values."),
        Column("direction", "text", "`higher` or `lower` is better; null where neither is."),
        Column("n", "integer", "Good trials."),
        Column("mean", "number", "Mean over them."),
        Column("stdev", "number", "Sample standard deviation; null for one trial."),
        Column("stderr", "number", "Standard error of the mean, stdev / sqrt(n); null for one trial."),
        Column(
            "ci_low", "number", "Lower end of the 95% interval of the mean by Student's t; not below zero where no "
            "value of the metric in the run is; null for one trial.",
        ),
        Column(
            "ci_high", "number", "Upper end of that interval, on the scale of logarithms where all values of the "
            "metric in the run are positive; null for one trial.",
        ),
        Column("min", "number", "Smallest value."),
        Column("max", "number", "Largest value."),
        Column("values", "numbers", "The values, by repetition."),
        Column("trials", "texts", "The trials that they are of, in the same order."),
        Column("samples", "integer", "Samples within the trials, in all; null where a value is no statistic."),
        Column("error_bound", "number", "How far a value can be off, the most of its trials; null where none says."),
    ),
    order=("run_id", "place", "metric", "stat"),
)  # fmt: skip
SOURCES = (TRIAL_FACT.name, MEASUREMENT_FACT.name)
"""The tables from which the view is computed."""

T_QUANTILES = (
    12.7062047362, 4.30265272975, 3.18244630528, 2.7764451052, 2.57058183564, 2.44691185114, 2.36462425159,
    2.3060041352, 2.2621571628, 2.22813885199, 2.20098516009, 2.17881282967, 2.16036865646, 2.14478668792,
    2.13144954556, 2.11990529922, 2.10981557783, 2.10092204024, 2.09302405441, 2.08596344727, 2.07961384473,
    2.0738730679, 2.06865761042, 2.06389856163, 2.05953855275, 2.05552943864, 2.05183051648, 2.0484071418,
    2.04522964213, 2.0422724563, 2.0395134464, 2.03693334346, 2.03451529745, 2.03224450932, 2.03010792825,
    2.02809400098, 2.02619246303, 2.02439416391, 2.02269092004, 2.02107539031, 2.01954097044, 2.01808170282,
    2.01669219923, 2.01536757444, 2.01410338888, 2.01289559892, 2.01174051373, 2.01063475762, 2.00957523713,
    2.0085591121, 2.00758377032, 2.00664680506, 2.00574599532, 2.00487928819, 2.00404478329, 2.00324071885,
    2.00246545929, 2.00171748415, 2.00099537809, 2.00029782201,
)  # fmt: skip
"""Student's t that leaves 2.5% in each tail, for 1 to 60 degrees of freedom; a test compares them with those of
analysis."""
_QUANTILES = ", ".join(map(repr, T_QUANTILES))
T_TERMS = (1.959963984540054, 2.372271230298562, 2.8224986157396112, 2.555849679507722, 1.5895340533938225)
"""The terms of t above 60 degrees of freedom, in powers of 1 / degrees of freedom, correct to nine digits."""


def duckdb_key(column: str) -> str:
    """Return the sort key for DuckDB."""
    number = "{'text': '', 'number': CAST(ltrim(part, '=') AS DOUBLE)}"
    text = "{'text': part, 'number': 0.0}"
    choice = f"CASE WHEN regexp_matches(part, '[0-9]') THEN {number} ELSE {text} END"
    return f"list_transform(regexp_extract_all({column}, '{_PARTS}'), lambda part: {choice})"


def clickhouse_key(column: str) -> str:
    """Return the sort key for ClickHouse."""
    pair = "(if(match(part, '[0-9]'), '', part), toFloat64OrZero(trimLeft(part, '=')))"
    return f"arrayMap(part -> {pair}, extractAll(assumeNotNull({column}), '{_PARTS}'))"


def postgres_key(column: str) -> str:
    """Return the sort key for PostgreSQL."""
    number = "CAST(ltrim(part[1], '=') AS float8)"
    pair = f"CASE WHEN part[1] ~ '[0-9]' THEN ROW(''::text, {number}) ELSE ROW(part[1], 0::float8) END"
    parts = f"regexp_matches({column}, '{_PARTS}', 'g') WITH ORDINALITY AS parts(part, at)"
    return f"ARRAY(SELECT {pair} FROM {parts} ORDER BY at)"


def duckdb_points(only: str) -> str:
    """Return a SELECT of points for DuckDB, unordered; `only` is a condition on `t`, the trials."""
    return f"""
WITH grouped AS (
  SELECT t.run_id, {", ".join(f"any_value(t.{key}) AS {key}" for key in _KEYS)}, t.instance_digest,
         string_agg(DISTINCT t.executor, ', ' ORDER BY t.executor) AS executor,
         m.metric, m.stat, m.unit, m.direction, count(*) AS n,
         list(m.value ORDER BY t.repetition, t.trial_id) AS "values",
         list(t.trial_id ORDER BY t.repetition, t.trial_id) AS trials,
         CAST(sum(m.n) AS BIGINT) AS samples, max(m.error_bound) AS error_bound
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
    AND {only}
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT {_BEFORE_THE_MEAN},
       list_avg("values") AS mean, list_stddev_samp("values") AS stdev,
       list_min("values") AS min, list_max("values") AS max, "values", trials, samples, error_bound
FROM grouped
""".strip()


def postgres_points(only: str) -> str:
    """Return a SELECT of points for PostgreSQL, unordered; `only` is a condition on `t`, the trials."""
    return f"""
WITH grouped AS (
  SELECT t.run_id, t.instance_digest, {", ".join(f"min(t.{key}) AS {key}" for key in _KEYS)},
         string_agg(DISTINCT t.executor, ', ' ORDER BY t.executor) AS executor,
         m.metric, m.stat, m.unit, m.direction, count(*) AS n,
         avg(m.value ORDER BY t.repetition, t.trial_id) AS mean,
         benchhouse.deviation(m.value ORDER BY t.repetition, t.trial_id) AS stdev,
         min(m.value) AS min, max(m.value) AS max,
         array_agg(m.value ORDER BY t.repetition, t.trial_id) AS "values",
         array_agg(t.trial_id ORDER BY t.repetition, t.trial_id) AS trials, CAST(sum(m.n) AS BIGINT) AS samples,
         max(m.error_bound) AS error_bound
  FROM benchhouse.trial_fact t JOIN benchhouse.measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
    AND {only}
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT {_BEFORE_THE_MEAN}, mean, stdev, min, max, "values", trials, samples, error_bound
FROM grouped
""".strip()


CLICKHOUSE_MEAN = "arrayFold((a, x) -> a + x, {0}, toFloat64(0)) / length({0})"
_CLICKHOUSE_DEVIATION = (
    "if(n < 2, NULL, sqrt(tupleElement(arrayFold((a, x) -> (a.1 + 1, a.2 + (x - a.2) / (a.1 + 1), "
    "a.3 + (x - (a.2 + (x - a.2) / (a.1 + 1))) * (x - a.2)), list, (toFloat64(0), toFloat64(0), toFloat64(0))), 3) "
    "/ (n - 1)))"
)


def clickhouse_points(only: str) -> str:
    """Return a SELECT of points for ClickHouse, unordered; `only` is a condition on `t`, the trials."""
    return f"""
WITH grouped AS (
  SELECT t.run_id AS run_id, t.instance_digest AS instance_digest,
         {", ".join(f"any(t.{key}) AS {key}" for key in _KEYS)},
         arrayStringConcat(arraySort(groupUniqArray(t.executor)), ', ') AS executor,
         m.metric AS metric, m.stat AS stat, m.unit AS unit, m.direction AS direction, count() AS n,
         arraySort(groupArray((t.repetition, t.trial_id, assumeNotNull(m.value)))) AS both,
         arrayMap(one -> one.3, both) AS list, arrayMap(one -> one.2, both) AS trials, sum(m.n) AS samples,
         max(m.error_bound) AS error_bound
  FROM benchhouse.trial_fact AS t JOIN benchhouse.measurement_fact AS m
       ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE m.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m.window = ''
    AND {only}
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT {_BEFORE_THE_MEAN},
       {CLICKHOUSE_MEAN.format("list")} AS mean, {_CLICKHOUSE_DEVIATION} AS stdev, arrayMin(list) AS min,
       arrayMax(list) AS max, list AS values, trials, samples, error_bound
FROM grouped
""".strip()


def duckdb_view() -> str:
    """Return the SELECT of the view `points` in DuckDB."""
    return _view(duckdb_points("true"), f"[{_QUANTILES}][n - 1]", duckdb_key)


def postgres_view() -> str:
    """Return the SELECT of the view `points` in PostgreSQL."""
    return _view(postgres_points("true"), f"(ARRAY[{_QUANTILES}]::float8[])[n - 1]", postgres_key)


def clickhouse_view() -> str:
    """Return the SELECT of the view `points` in ClickHouse."""
    return _view(clickhouse_points("1"), f"arrayElement([{_QUANTILES}], n - 1)", clickhouse_key)


def _view(points: str, table: str, key: Callable[[str], str]) -> str:
    """Add half the width of the interval to `points`, then its ends; `table` looks up t for few trials."""
    columns = ", ".join(f'"{column.name}"' for column in POINTS_VIEW.columns)
    order = f"{key('target_name')}, {key('point')}, instance_digest"
    whole = "CAST(n AS DOUBLE PRECISION)"
    expansion = " + ".join(f"{term!r} / power({whole} - 1, {power})" for power, term in enumerate(T_TERMS))
    t = f"CASE WHEN n < 2 THEN NULL WHEN n <= {len(T_QUANTILES) + 1} THEN {table} ELSE {expansion} END"
    return f"""
SELECT {columns} FROM (
  SELECT *, CASE WHEN least_value >= 0 AND mean < half THEN 0 ELSE mean - half END AS ci_low,
         CASE WHEN least_value > 0 THEN mean * exp(half / mean) ELSE mean + half END AS ci_high
  FROM (
    SELECT *, stdev / sqrt({whole}) AS stderr, stdev / sqrt({whole}) * ({t}) AS half,
           min(min) OVER (PARTITION BY run_id, metric, stat, unit) AS least_value,
           dense_rank() OVER (PARTITION BY run_id ORDER BY {order}) AS place
    FROM ({points}) AS rows_of_points
  ) AS with_half
) AS with_ends
ORDER BY run_id, place, metric, stat, unit
""".strip()
