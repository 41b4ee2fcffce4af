"""The queries behind summaries, reports and comparisons. Their text is pinned with every number that is published."""

from collections.abc import Iterable
from pathlib import Path

from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse import fresh
from benchhouse.warehouse.query import Result, Warehouse, own
from benchhouse.warehouse.tables import SCHEMA_VERSION

# Means and deviations are taken of the ordered list, so that the same rows give the same bits on any number of
# threads. Numbers about a part of a trial (a scope or a window of their own) are not mixed with those about all of it.
POINTS = own(
    """
WITH grouped AS (
  SELECT t.run_id, any_value(t.scenario) AS scenario, any_value(t.experiment) AS experiment,
         any_value(t.target_name) AS target_name, any_value(t.point) AS point, any_value(t.axes) AS axes,
         any_value(t.target) AS target, any_value(t.parameters) AS parameters, t.instance_digest,
         any_value(t.benchmark_case_id) AS benchmark_case_id,
         any_value(t.workload_spec_digest) AS workload_spec_digest,
         string_agg(DISTINCT t.executor, ', ' ORDER BY t.executor) AS executor,
         m.metric, m.stat, m.unit, m.direction, count(*) AS n,
         list(m.value ORDER BY t.repetition, t.trial_id) AS "values",
         list(t.trial_id ORDER BY t.repetition, t.trial_id) AS trials,
         CAST(sum(m.n) AS BIGINT) AS samples
  FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
  WHERE t.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
    AND list_contains(CAST($runs AS VARCHAR[]), t.run_id)
  GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
)
SELECT run_id, scenario, experiment, target_name, point, axes, target, parameters, instance_digest,
       benchmark_case_id, workload_spec_digest, executor, metric, stat, unit, direction, n,
       list_avg("values") AS mean, list_stddev_samp("values") AS stdev,
       list_min("values") AS min, list_max("values") AS max, "values", trials, samples
FROM grouped
ORDER BY run_id, target_name, point, instance_digest, metric, stat, unit, direction NULLS FIRST
""".strip(),
    fresh.points,
)

_PICKED = "    AND list_contains(CAST($columns AS VARCHAR[]), m.metric || ' ' || m.stat)\n"
PICKED_POINTS = own(POINTS.replace("  GROUP BY t.run_id", f"{_PICKED}  GROUP BY t.run_id", 1))

COLUMNS = own(
    """
SELECT metric, stat, count(DISTINCT run_id || ' ' || instance_digest) AS points
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = ''
  AND list_contains(CAST($runs AS VARCHAR[]), run_id)
GROUP BY metric, stat ORDER BY metric, stat
""".strip()
)

TRIALS = own(
    """
SELECT * FROM trial_fact
WHERE list_contains(CAST($runs AS VARCHAR[]), run_id)
ORDER BY run_id, warmup DESC, target_name, point, instance_digest, repetition, trial_id
""".strip(),
    fresh.trials,
)

MANIFESTS = own(
    "SELECT DISTINCT artifact_manifest_digest FROM trial_fact WHERE list_contains(CAST($runs AS VARCHAR[]), run_id)"
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


def points(warehouse: Warehouse, run_ids: Iterable[str], columns: Iterable[tuple[str, str]] | None = None) -> Result:
    """One row per instance, metric and stat of each run: n, mean, spread, the values and the trials behind them.

    Only trials that succeeded and were no warm-up count, so no invalid one does; `values` and `trials` are ordered
    by repetition. `columns` are the metrics and stats wanted; None: all.
    """
    if columns is None:
        return _of_runs(warehouse, "points", POINTS, run_ids)
    runs, picked = sorted(set(run_ids)), sorted(f"{metric} {stat}" for metric, stat in columns)
    return warehouse.query(PICKED_POINTS, {"runs": runs, "columns": picked}, runs=runs, name="points")


def columns(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """The metrics and stats that these runs have, and how many points have each."""
    return _of_runs(warehouse, "columns", COLUMNS, run_ids)


def trials(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Every trial of these runs, all columns of trial_fact."""
    return _of_runs(warehouse, "trials", TRIALS, run_ids)


def is_collected(warehouse: Warehouse, run_id: str, folders: Iterable[Path]) -> bool:
    """Whether the tables hold these very trial folders, by the digests of their manifests.

    Reading 2,000 manifests takes a tenth of collecting them anew. That their other files are as sealed is for
    `bench verify` to say.
    """
    if warehouse.catalog.older_runs(SCHEMA_VERSION, [run_id]):
        return False
    known = {row[0] for row in _of_runs(warehouse, "manifests", MANIFESTS, [run_id]).rows}
    try:
        return bool(known) and all(file_digest(TrialFolder(folder).manifest) in known for folder in folders)
    except OSError:
        return False


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
