"""The rows of every table from sealed trial folders. This module writes nothing."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from pydantic import ValidationError

from benchhouse.evidence import older
from benchhouse.evidence.folder import packages_of
from benchhouse.evidence.manifest import Manifest
from benchhouse.schema.digests import canonical_json, digest
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse import run_tables as facts
from benchhouse.warehouse.dimensions import (
    OWN_IDS,
    dimension_rows,
    explained,
    manifests_digest,
    scheduler_path,
    workload_rows,
)
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.labels import axes_of, point_label, target_name, utc
from benchhouse.warehouse.outcomes import outcome_rows
from benchhouse.warehouse.slices import NO_SLICES, Slices, slice_up
from benchhouse.warehouse.table import Row
from benchhouse.warehouse.tables import TABLES

_OF_EVERY_ROW = (
    "trial_id", "run_id", "benchmark_case_id", "workload_spec_digest", "instance_digest", "repetition", "warmup",
)  # fmt: skip
_OF_SPEC = ("scenario", "plan_digest", "component", "service", "executor", "attempt", "code_digest", "parallel")
_OF_META = ("duration_s", "host", "git_commit", "git_dirty", "package_lock_digest")

OF_CONTRACT = (
    "intent", "mode", "cadence", "contract", "contract_digest", "asked_mode", "guarantees", "missing_guarantees",
    "sinks",
)  # fmt: skip
"""Columns of benchmark_run_fact that only a contract fills."""


@dataclass(frozen=True)
class TrialRows:
    """The rows that one trial adds to the tables: trial_fact, its measurements, telemetry, and where it ran."""

    trial: Row
    measurements: Sequence[Row]
    telemetry: Slices
    dimensions: dict[str, Row]


class NotCollectable(Exception):  # noqa: N818 - a reason, listed for the user
    """The reason why a folder, or a file of the lake, does not enter the tables."""


class ReadRefused(NotCollectable):
    """The system refused to read it; a later attempt may work."""


def read_folder(workspace: WorkspaceFolder, folder: TrialFolder) -> TrialRows:
    """Read one sealed folder. Its files must be unchanged: they are checked against the digests of the manifest."""
    try:
        sealed = folder.manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotCollectable("no manifest.json: not finished") from error
    except OSError as error:
        raise ReadRefused(f"manifest.json: {error.strerror}") from error
    try:
        manifest = older.read(Manifest, sealed)
        spec = older.read(TrialSpec, _sealed_bytes(folder.spec, manifest))
        meta = older.read(Meta, _sealed_bytes(folder.meta, manifest))
        if folder.packages.name in manifest.files:
            packages = packages_of(_sealed_bytes(folder.packages, manifest))
            meta = meta.model_copy(update={"packages": packages})
        measurements: list[Measurement] = []
        if folder.metrics.name in manifest.files:  # a lost trial has none
            metrics = older.read(MetricsFile, _sealed_bytes(folder.metrics, manifest))
            measurements = metrics.benchhouse.measurements
        if not spec.trial_id == meta.trial_id == manifest.trial_id or not spec.run_id == meta.run_id == manifest.run_id:
            raise NotCollectable("trial.json, meta.json and manifest.json name different trials or runs")
        summary = None
        if any(name.startswith("telemetry/") and name.endswith(".parquet") for name in manifest.files):
            content = _sealed_bytes(folder.telemetry_summary, manifest, "telemetry/summary.json")
            summary = older.read(TelemetrySummary, content)
        path, root = os.path.realpath(folder.path), os.path.realpath(workspace.root)
        place = path.removeprefix(f"{root.rstrip('/')}/")
        return make_rows(spec, meta, measurements, hashlib.sha256(sealed).hexdigest(), place, summary)
    except ValidationError as error:
        raise NotCollectable(older.misread(error)) from error
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise NotCollectable(str(error)) from error
    except OSError as error:
        raise ReadRefused(str(error)) from error


def make_rows(
    spec: TrialSpec,
    meta: Meta,
    measurements: Iterable[Measurement],
    manifest_digest: str,
    folder: str,
    telemetry: TelemetrySummary | None = None,
) -> TrialRows:
    """Return the rows of one trial; `folder` is relative to the workspace."""
    shared: Row = {name: getattr(spec, name) for name in _OF_EVERY_ROW}
    shared |= {"artifact_manifest_digest": manifest_digest, "outcome": meta.outcome}
    dimensions = dimension_rows(spec, meta)
    trial = shared | _from_spec(spec) | _from_meta(spec, meta) | _contract(spec, meta) | {"folder": folder}
    trial |= {OWN_IDS[table]: row[OWN_IDS[table]] for table, row in dimensions.items()}
    rows = [
        shared
        | {
            "metric": number.metric,
            "stat": number.stat,
            "value": number.value,
            "error_bound": number.error_bound,
            "outcome": meta.outcome if number.valid or meta.outcome != "succeeded" else "invalid",
            "unit": number.unit,
            "direction": number.direction,
            "n": number.n,
            "scope": number.scope,
            "window": number.window,
        }
        for number in measurements
    ]
    slices = slice_up(telemetry, meta.host, meta.topology) if telemetry else NO_SLICES
    return TrialRows(trial, rows, slices, dimensions)


def _from_spec(spec: TrialSpec) -> Row:
    """Return the columns from trial.json."""
    return {
        **{name: getattr(spec, name) for name in _OF_SPEC},
        "experiment": spec.experiment.name,
        "experiment_version": spec.experiment.version,
        "distribution": spec.experiment.distribution,
        "distribution_version": spec.experiment.distribution_version,
        "target_name": target_name(spec.target),
        "target": canonical_json(spec.target).decode(),
        "parameters": canonical_json(spec.parameters).decode(),
        "axes": canonical_json(axes_of(spec)).decode(),
        "labels": canonical_json(spec.labels).decode(),
        "point": point_label(spec),
        # A seed may use all 64 bits; the column is signed.
        "seed": spec.seed if spec.seed < 1 << 63 else spec.seed - (1 << 64),
        "nodes": spec.resources.nodes,
        "gpus": spec.resources.gpus,
        "cpus": spec.resources.cpus,
        "memory_bytes": spec.resources.memory,
        "environment_digest": digest(dict(spec.environment)),
        "limits": canonical_json(spec.limits.model_dump(exclude_none=True)).decode(),
    }


def _from_meta(spec: TrialSpec, meta: Meta) -> Row:
    """Return the columns from meta.json."""
    queue_s, why = _queue(spec, meta)
    pod_uid, cpu_s, memory = meta.custom.get("pod_uid"), meta.usage.get("cpu_s"), meta.usage.get("peak_memory_bytes")
    return {
        **{name: getattr(meta, name) for name in _OF_META},
        "runtime": meta.ran_in(spec.runtime),
        "failure_code": meta.failure.code if meta.failure else None,
        "failure_message": meta.failure.message if meta.failure else None,
        "warnings": [f"{warning.code}: {warning.message}" for warning in meta.warnings],
        "started": utc(meta.started),
        "ended": utc(meta.ended),
        "queue_s": queue_s,
        "cpu_s": float(cpu_s) if isinstance(cpu_s, int | float) else None,
        "peak_memory_bytes": int(memory) if isinstance(memory, int | float) else None,
        "scheduler_path": scheduler_path(spec, meta),
        "scheduler_run_id": meta.slurm.get("array_job_id") or meta.slurm.get("job_id"),
        "job_uid": meta.slurm_job_id,
        "pod_uid": pod_uid if isinstance(pod_uid, str) else None,
        "custom": canonical_json(meta.custom).decode(),
        "unknown": explained({"queue_s": why} if queue_s is None else {}),
    }


def _queue(spec: TrialSpec, meta: Meta) -> tuple[float | None, str]:
    """Return the seconds in the queue, or None and the reason. They come from two clocks, which may disagree."""
    submitted, started, where = spec.submitted, meta.started, "the submitting machine"
    if submitted is None:  # Kubernetes: how long the trial's pod waited, by the clocks of the cluster
        submitted, where = meta.placed.get("job_created"), "the API server"
        started = meta.placed.get("pod_started", "")
    if not submitted or not started:
        return None, f"the executor {spec.executor} has no queue of its own, or did not say when it was submitted"
    waited = (utc(started) - utc(submitted)).total_seconds()
    if waited < 0:
        return None, f"the clock of {meta.host} is at least {-waited:g} s behind that of {where}"
    return waited, ""


Content = list[Row] | list[tuple[Row, Slices]]


def tabulate(trials: Sequence[TrialRows]) -> dict[str, Content]:
    """Return the rows of every table for one run, in their order; `trials` is not empty. Tables without rows are left
    out."""
    trial_rows = [trial.trial for trial in trials]
    tables: dict[str, list[Row]] = {
        facts.RUN_FACT.name: [_run_row(trial_rows)],
        facts.TRIAL_FACT.name: trial_rows,
        facts.MEASUREMENT_FACT.name: [row for trial in trials for row in trial.measurements],
        facts.WORKLOAD_DIM.name: workload_rows(trial_rows),
        facts.LINEAGE_DIM.name: [_lineage_row(trial_rows)],
        **{table: _dimension(table, trials) for table in OWN_IDS},
        **outcome_rows(trial_rows, {trial.trial["trial_id"]: trial.measurements for trial in trials}),
    }
    for name, rows in tables.items():
        rows.sort(key=itemgetter(*TABLES[name].order))
    slices = [(trial.trial, trial.telemetry) for trial in trials if len(trial.telemetry)]
    slices.sort(key=lambda part: str(part[0]["trial_id"]))
    made: dict[str, Content] = {name: rows for name, rows in tables.items() if rows}
    return made | ({facts.TELEMETRY_SLICE_FACT.name: slices} if slices else {})


def _dimension(table: str, trials: Sequence[TrialRows]) -> list[Row]:
    """Return the rows of one dimension, each with the identity of its trials."""
    groups = grouped(trials, lambda trial: trial.dimensions[table][OWN_IDS[table]]).values()
    return [members[0].dimensions[table] | _run_keys([trial.trial for trial in members]) for members in groups]


def _run_keys(trials: Sequence[Row]) -> Row:
    """Return the identity of a row about several trials of a run."""
    cases = sorted({row["benchmark_case_id"] for row in trials})
    return {
        "run_id": trials[0]["run_id"],
        "benchmark_case_id": cases[0] if len(cases) == 1 else digest(cases)[:16],
        "workload_spec_digest": digest(sorted({row["workload_spec_digest"] for row in trials})),
        "artifact_manifest_digest": manifests_digest(trials),
    }


def _contract(spec: TrialSpec, meta: Meta) -> Row:
    if not spec.contract:
        return {"contract": None, "guarantees": None}
    from benchhouse.warehouse.contract_rows import trial_columns  # imports the models of contracts

    return trial_columns(spec, meta)


def _governed(trials: Sequence[Row], gaps: dict[str, str]) -> Row:
    """Return the columns for the contract of a run; without a contract, null columns with a reason in `gaps`."""
    if any(row["contract"] for row in trials):
        from benchhouse.warehouse.contract_rows import run_columns, run_contract

        if contract := run_contract(trials):
            return run_columns(contract)
    gaps |= dict.fromkeys(OF_CONTRACT, "no contract governs the run")
    return dict.fromkeys(OF_CONTRACT)


def _run_row(trials: Sequence[Row]) -> Row:
    first = min(trials, key=lambda row: (row["started"], row["trial_id"]))
    commits = {row["git_commit"] for row in trials}
    dirty = {row["git_dirty"] for row in trials} - {None}
    cases = sorted({row["benchmark_case_id"] for row in trials})
    succeeded = sum(row["outcome"] == "succeeded" for row in trials)
    waits = [row["queue_s"] for row in trials if row["queue_s"] is not None]
    gaps: dict[str, str] = {}
    governed = _governed(trials, gaps)
    if not waits:
        gaps |= {"queue_s": json.loads(first["unknown"] or "{}").get("queue_s", "no trial says")}
    same = ("scenario", "plan_digest", "experiment", "experiment_version", "runtime", "labels")
    return {name: first[name] for name in same} | _shared_ids(trials, gaps) | _run_keys(trials) | {
        "executor": ", ".join(sorted({row["executor"] for row in trials})),
        **governed,
        "started": first["started"],
        "ended": max(row["ended"] for row in trials),
        "queue_s": max(waits, default=None),
        "trials": len(trials),
        "succeeded": succeeded,
        "failed": len(trials) - succeeded,
        "warmups": sum(row["warmup"] for row in trials),
        "cases": len(cases),
        "instances": len({row["instance_digest"] for row in trials}),
        "benchmark_case_ids": cases,
        "git_commit": commits.pop() if len(commits) == 1 else None,
        "git_dirty": any(dirty) if dirty else None,
        "hosts": sorted({row["host"] for row in trials}),
        "unknown": explained(gaps),
    }  # fmt: skip


def _shared_ids(trials: Sequence[Row], gaps: dict[str, str]) -> Row:
    """Return the ids that all trials of a run share; null with a reason in `gaps` if they differ."""
    row = Row()
    for name in ("scheduler_path", "scheduler_run_id", *OWN_IDS.values()):
        values = sorted({trial[name] for trial in trials} - {None})
        row[name] = values[0] if len(values) == 1 else None
        if row[name] is None:
            gaps[name] = f"its trials had several: {', '.join(values)}" if values else "no batch system had it"
    return row


def _lineage_row(trials: Sequence[Row]) -> Row:
    return _run_keys(trials) | {
        "raw_uri": os.path.commonpath({os.path.dirname(row["folder"]) or "." for row in trials}),  # noqa: PTH120
        "trial_manifests": sorted(row["artifact_manifest_digest"] for row in trials),
    }


def _sealed_bytes(path: Path, manifest: Manifest, name: str = "") -> bytes:
    name = name or path.name
    entry = manifest.files.get(name)
    if entry is None:
        raise NotCollectable(f"{name} is not in the manifest")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise NotCollectable(f"{name} is not what was sealed: its sha256 differs from the manifest's")
    return content
