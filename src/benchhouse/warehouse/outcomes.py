"""Rows of the outcome tables: per point, the means of its valid trials, in the units of the columns."""

import json
from collections.abc import Mapping, Sequence
from math import fsum
from operator import itemgetter

from benchhouse.warehouse.dimensions import explained, manifests_digest, number_of
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.outcome_tables import OUTCOME_TABLES, TRAINING_OUTCOME_FACT, Outcome, OutcomeTable
from benchhouse.warehouse.table import Row

_SCALES: dict[str, tuple[str, float]] = {
    "h": ("time", 3600.0),
    "s": ("time", 1.0), "ms": ("time", 1e-3), "us": ("time", 1e-6), "µs": ("time", 1e-6), "ns": ("time", 1e-9),
    "B": ("size", 1.0), "kB": ("size", 1e3), "KB": ("size", 1e3), "MB": ("size", 1e6), "GB": ("size", 1e9),
    "KiB": ("size", 2.0**10), "MiB": ("size", 2.0**20), "GiB": ("size", 2.0**30),
    "1": ("share", 1.0), "%": ("share", 0.01),
}  # fmt: skip
_COUNTED = frozenset({"1/s", "requests/s", "queries/s", "items/s", "ops/s"})


def outcome_rows(trials: Sequence[Row], measurements: dict[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Return the rows by table; `trials` are rows of trial_fact of one run, `measurements` those of measurement_fact by
    trial."""
    tables: dict[str, list[Row]] = {}
    for kind in OUTCOME_TABLES:
        points = grouped((row for row in trials if row["component"] in kind.components), itemgetter("instance_digest"))
        tables[kind.table.name] = [row for rows in points.values() for row in _rows_of(kind, rows, measurements)]
    _add_efficiency(tables[TRAINING_OUTCOME_FACT.name], {row["instance_digest"]: row for row in trials})
    return tables


def _add_efficiency(outcomes: Sequence[Row], trials: Mapping[str, Row]) -> None:
    """Add the throughput per rank relative to the fewest ranks, among points of the run that differ in nothing else."""
    worlds: dict[str, dict[int, Row]] = {}
    for row in outcomes:
        first = trials[row["instance_digest"]]
        given = json.loads(first["parameters"])
        per_node, ranks = given.pop("ranks_per_node", None), given.pop("ranks", None)
        world = per_node * first["nodes"] if isinstance(per_node, int) else ranks
        if isinstance(world, int) and world > 0 and not row["phase"] and _rate(row):
            same = json.dumps([row["experiment"], row["experiment_version"], row["target_name"], given], sort_keys=True)
            worlds.setdefault(same, {}).setdefault(world, row)
    for points in worlds.values():
        least = min(points)
        for world, row in points.items() if len(points) > 1 else ():
            share = _rate(row) / world / (_rate(points[least]) / least)
            row |= {"scaling_efficiency": share, "scaling_efficiency_pct": 100.0 * share}
            gaps = json.loads(row["unknown"] or "{}")
            row["unknown"] = explained({name: why for name, why in gaps.items() if row[name] is None})


def _rate(row: Row) -> float:
    return row["tokens_per_s"] or row["samples_per_s"] or 0.0


def _rows_of(kind: OutcomeTable, trials: Sequence[Row], measurements: dict[str, Sequence[Row]]) -> list[Row]:
    """Return the rows of one point: one, or one per phase."""
    counted = [row for row in trials if not row["warmup"]]
    good = sorted(
        (row for row in counted if row["outcome"] == "succeeded"), key=lambda row: (row["repetition"], row["trial_id"])
    )
    whole = [m for row in good for m in measurements.get(row["trial_id"], ()) if m["scope"] == "trial"]
    outcomes = {metric for outcome in kind.outcomes for metric in outcome.metrics}  # not those of single ranks
    windows = sorted({m["window"] for m in whole if m["metric"] in outcomes} | {""}) if kind.by_window else [""]
    if not counted:  # only its warm-ups have run
        return []
    return [
        _head(kind, trials[0], counted, good, window)
        | _values(kind.outcomes, [m for m in whole if m["window"] == window])
        for window in windows
    ]


def _head(kind: OutcomeTable, first: Row, counted: Sequence[Row], good: Sequence[Row], window: str) -> Row:
    same = (
        "run_id", "benchmark_case_id", "workload_spec_digest", "instance_digest", "scenario", "experiment",
        "experiment_version", "target_name", "point",
    )  # fmt: skip
    row = {name: first[name] for name in same} | {
        "artifact_manifest_digest": manifests_digest(counted),
        "trials": len(counted),
        "succeeded": len(good),
    }
    if kind.by_window:
        return row | {"phase": window, "nodes": first["nodes"], "gpus": first["gpus"]}
    parameters = json.loads(first["parameters"])
    return row | {
        "concurrency": number_of(parameters, "concurrency"),
        "request_rate": number_of(parameters, "rps", "request_rate"),
    }


def _values(outcomes: Sequence[Outcome], measured: Sequence[Row]) -> Row:
    by_stat = grouped((row for row in measured if row["outcome"] == "succeeded"), itemgetter("metric", "stat"))
    refused = {(row["metric"], row["stat"]) for row in measured} - by_stat.keys()
    row, gaps = Row(), dict[str, str]()
    for outcome in outcomes:
        keys = [(metric, stat) for metric in outcome.metrics for stat in outcome.stats if (metric, stat) in by_stat]
        row[outcome.name] = None
        if not keys:
            invalid = any((metric, stat) in refused for metric in outcome.metrics for stat in outcome.stats)
            why = "INVALID: it can be off by more than is taken" if invalid else "not measured"
            gaps[outcome.name] = why if measured else "no good trial"
            continue
        numbers = by_stat[keys[0]]
        factors = {number["unit"]: _factor(number["unit"], outcome.unit) for number in numbers}
        if odd := sorted(unit for unit, factor in factors.items() if factor is None):
            gaps[outcome.name] = f"measured in {', '.join(odd)}, which is not {outcome.unit}"
            continue
        values = [number["value"] * (factors[number["unit"]] or 1.0) for number in numbers]
        row[outcome.name] = fsum(values) / len(values)
    return row | {"unknown": explained(gaps)}


def _factor(unit: str, wanted: str) -> float | None:
    """Return the factor that converts a unit to the wanted one; None if there is none."""
    if unit == wanted or (unit in _COUNTED and wanted in _COUNTED):
        return 1.0
    above, _, below = unit.partition("/")
    wanted_above, _, wanted_below = wanted.partition("/")
    if below != wanted_below or above not in _SCALES or wanted_above not in _SCALES:
        return None
    (kind, scale), (wanted_kind, wanted_scale) = _SCALES[above], _SCALES[wanted_above]
    return scale / wanted_scale if kind == wanted_kind else None
