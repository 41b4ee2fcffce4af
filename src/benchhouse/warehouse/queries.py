"""The queries behind summaries, reports, and comparisons. Their text is pinned with every published number."""

# ruff: noqa: S608 - the names in these texts are our own

from collections.abc import Iterable
from pathlib import Path

from benchhouse.schema.digests import file_digest
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse.points import duckdb_key, duckdb_points
from benchhouse.warehouse.query import Result, Warehouse, own
from benchhouse.warehouse.table import SCHEMA_VERSION

_THESE_RUNS = "list_contains(CAST($runs AS VARCHAR[]), {}run_id)"
_BY_POINT = f"{duckdb_key('target_name')}, {duckdb_key('point')}, instance_digest"
POINTS = own(
    f"""
{duckdb_points(_THESE_RUNS.format("t."))}
ORDER BY run_id, {_BY_POINT}, metric, stat, unit, direction NULLS FIRST
""".strip()
)

_PICKED = "    AND list_contains(CAST($columns AS VARCHAR[]), m.metric || ' ' || m.stat)\n"
PICKED_POINTS = own(POINTS.replace("  GROUP BY t.run_id", f"{_PICKED}  GROUP BY t.run_id", 1))

COLUMNS = own(
    """
SELECT metric, stat, count(DISTINCT run_id || ' ' || instance_digest) AS points, min(trial_id) AS trial
FROM measurement_fact
WHERE outcome = 'succeeded' AND NOT warmup AND scope = 'trial' AND "window" = ''
  AND list_contains(CAST($runs AS VARCHAR[]), run_id)
GROUP BY metric, stat ORDER BY metric, stat
""".strip()
)

REFUSED_FIGURES = own(
    f"""
SELECT t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction, count(*) AS n
FROM trial_fact t JOIN measurement_fact m ON m.run_id = t.run_id AND m.trial_id = t.trial_id
WHERE t.outcome = 'succeeded' AND NOT t.warmup AND m.scope = 'trial' AND m."window" = ''
  AND {_THESE_RUNS.format("t.")}
GROUP BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit, m.direction
HAVING bool_and(m.outcome = 'invalid') ORDER BY t.run_id, t.instance_digest, m.metric, m.stat, m.unit
""".strip()
)

TRIALS = own(
    f"""
SELECT * FROM trial_fact
WHERE {_THESE_RUNS.format("")}
ORDER BY run_id, warmup DESC, {_BY_POINT}, repetition, trial_id
""".strip()
)

TELEMETRY_OF_POINTS = own(
    """
WITH seen AS (
  SELECT s.*, t.instance_digest,
         bool_or(s.phase = 'steady') OVER (PARTITION BY s.trial_id, s.scope, s.series) AS has_steady
  FROM telemetry_slice_fact s JOIN trial_fact t ON t.run_id = s.run_id AND t.trial_id = s.trial_id
  WHERE t.outcome = 'succeeded' AND NOT t.warmup AND list_contains(CAST($runs AS VARCHAR[]), s.run_id)
)
SELECT instance_digest, scope, series, unit, phase, count(*) AS trials, CAST(sum(n) AS BIGINT) AS n,
       min("min") AS "min", max("max") AS "max",
       -- in one order, since a sum of floats depends on it
       coalesce(sum("avg" * n ORDER BY trial_id) / nullif(sum(n), 0), avg("avg" ORDER BY trial_id)) AS "avg",
       min(p50) AS p50_least, max(p50) AS p50_most, min(p95) AS p95_least, max(p95) AS p95_most,
       min(p99) AS p99_least, max(p99) AS p99_most
FROM seen WHERE phase = CASE WHEN has_steady THEN 'steady' ELSE 'trial' END
GROUP BY instance_digest, scope, series, unit, phase ORDER BY instance_digest, scope, series, phase
""".strip()
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
    """Return one row per instance, metric, and stat of each run: n, mean, spread, and the values and trials behind
    them.

    Only succeeded trials count, without warm-ups, and without numbers that are invalid on their own; `values` and
    `trials` are ordered by repetition. `columns` are the metrics and stats to return; None for all.
    """
    if columns is None:
        return _of_runs(warehouse, "points", POINTS, run_ids)
    runs, picked = sorted(set(run_ids)), sorted(f"{metric} {stat}" for metric, stat in columns)
    return warehouse.query(PICKED_POINTS, {"runs": runs, "columns": picked}, runs=runs, name="points")


def columns(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Return the metrics and stats of these runs, how many points have each, and a trial that has it."""
    return _of_runs(warehouse, "columns", COLUMNS, run_ids)


def refused_figures(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Return the metrics and stats of a point that are INVALID in all its succeeded trials: `points` has no row of
    them."""
    return _of_runs(warehouse, "refused figures", REFUSED_FIGURES, run_ids)


def trials(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Return every trial of these runs, with all columns of trial_fact."""
    return _of_runs(warehouse, "trials", TRIALS, run_ids)


def telemetry_of_points(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Return the telemetry of a point's succeeded trials by scope and series: in the steady phase, or in the trial if
    there is none."""
    return _of_runs(warehouse, "telemetry of points", TELEMETRY_OF_POINTS, run_ids)


def is_collected(warehouse: Warehouse, run_id: str, folders: Iterable[Path]) -> bool:
    """Return whether the tables hold exactly these trial folders, by the digests of their manifests.

    Reading 2,000 manifests takes a tenth of the time of collecting them again. Their other files are verified by `bench
    verify`.
    """
    if warehouse.catalog.older_runs(SCHEMA_VERSION, [run_id]):
        return False
    manifests = [TrialFolder(folder).manifest for folder in folders]
    if not manifests:  # the evidence is not available
        return any(entry.trials for entry in warehouse.catalog.files(["trial_fact"], [run_id]))
    known = {row[0] for row in _of_runs(warehouse, "manifests", MANIFESTS, [run_id]).rows}
    try:
        return all(file_digest(manifest) in known for manifest in manifests)
    except OSError:
        return False


def failures(warehouse: Warehouse, run_ids: Iterable[str]) -> Result:
    """Return the trials that did not succeed, including invalid ones, and the reasons."""
    return _of_runs(warehouse, "failures", FAILURES, run_ids)


def _of_runs(warehouse: Warehouse, name: str, sql: str, run_ids: Iterable[str]) -> Result:
    runs = sorted(set(run_ids))
    return warehouse.query(sql, {"runs": runs}, runs=runs, name=name)
