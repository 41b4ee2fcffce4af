"""From sealed trial folders to the rows of every table. Nothing is written here."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.evidence import older
from benchhouse.evidence.folder import packages_of
from benchhouse.evidence.manifest import Manifest
from benchhouse.schema.digests import canonical_json, digest
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse.dimensions import OWN_IDS, dimension_rows, explained, scheduler_path, workload_rows
from benchhouse.warehouse.labels import axes_of, point_label, target_name, utc
from benchhouse.warehouse.outcomes import outcome_rows
from benchhouse.warehouse.slices import NO_SLICES, Slices, slice_up
from benchhouse.warehouse.table import Row
from benchhouse.warehouse.tables import (
    LINEAGE_DIM,
    MEASUREMENT_FACT,
    RUN_FACT,
    TABLES,
    TELEMETRY_SLICE_FACT,
    TRIAL_FACT,
    WORKLOAD_DIM,
)


@dataclass(frozen=True)
class TrialRows:
    """What one trial adds to the tables: a row of trial_fact, its numbers, what monitors saw, and where it ran."""

    trial: Row
    measurements: Sequence[Row]
    telemetry: Slices
    dimensions: dict[str, Row]


class NotCollectable(Exception):  # noqa: N818 - a reason, told to the user in a list
    """Why a folder does not enter the tables."""


def read_folder(workspace: WorkspaceFolder, folder: TrialFolder) -> TrialRows:
    """Read one sealed folder. What is read must be what was sealed: the digests of the manifest are checked."""
    try:
        sealed = folder.manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotCollectable("no manifest.json: not finished") from error
    except OSError as error:
        raise NotCollectable(f"manifest.json: {error.strerror}") from error
    try:
        manifest = older.read(Manifest, sealed)
        spec = older.read(TrialSpec, _sealed_bytes(folder.spec, manifest))
        meta = older.read(Meta, _sealed_bytes(folder.meta, manifest))
        if folder.packages.name in manifest.files:
            packages = packages_of(_sealed_bytes(folder.packages, manifest))
            meta = meta.model_copy(update={"packages": packages})
        measurements: list[Measurement] = []
        if folder.metrics.name in manifest.files:  # a trial that was lost has none
            metrics = older.read(MetricsFile, _sealed_bytes(folder.metrics, manifest))
            measurements = metrics.benchhouse.measurements
        if not spec.trial_id == meta.trial_id == manifest.trial_id or not spec.run_id == meta.run_id == manifest.run_id:
            raise NotCollectable("trial.json, meta.json and manifest.json name different trials or runs")
        summary = None
        if any(name.startswith("telemetry/") and name.endswith(".parquet") for name in manifest.files):
            content = _sealed_bytes(folder.telemetry_summary, manifest, "telemetry/summary.json")
            summary = older.read(TelemetrySummary, content)
        place = _place(workspace, folder)
        return make_rows(spec, meta, measurements, hashlib.sha256(sealed).hexdigest(), place, summary)
    except ValidationError as error:
        raise NotCollectable(older.misread(error)) from error
    except (OSError, ValueError) as error:
        raise NotCollectable(str(error)) from error


def make_rows(
    spec: TrialSpec,
    meta: Meta,
    measurements: Iterable[Measurement],
    manifest_digest: str,
    folder: str,
    telemetry: TelemetrySummary | None = None,
) -> TrialRows:
    """The rows of one trial; `folder` is relative to the workspace."""
    shared: Row = {
        "trial_id": spec.trial_id,
        "run_id": spec.run_id,
        "benchmark_case_id": spec.benchmark_case_id,
        "workload_spec_digest": spec.workload_spec_digest,
        "artifact_manifest_digest": manifest_digest,
        "repetition": spec.repetition,
        "warmup": spec.warmup,
        "outcome": meta.outcome,
    }
    dimensions = dimension_rows(spec, meta)
    trial = shared | _asked(spec) | _happened(spec, meta) | {"folder": folder}
    trial |= {OWN_IDS[table]: row[OWN_IDS[table]] for table, row in dimensions.items()}
    rows = [
        shared
        | {
            "instance_digest": spec.instance_digest,
            "metric": one.metric,
            "stat": one.stat,
            "value": one.value,
            "unit": one.unit,
            "direction": one.direction,
            "n": one.n,
            "scope": one.scope,
            "window": one.window,
        }
        for one in measurements
    ]
    return TrialRows(trial, rows, slice_up(telemetry, meta.topology) if telemetry else NO_SLICES, dimensions)


def _asked(spec: TrialSpec) -> Row:
    """What trial.json says."""
    return {
        "scenario": spec.scenario,
        "instance_digest": spec.instance_digest,
        "plan_digest": spec.plan_digest,
        "experiment": spec.experiment.name,
        "experiment_version": spec.experiment.version,
        "distribution": spec.experiment.distribution,
        "distribution_version": spec.experiment.distribution_version,
        "component": spec.component,
        "service": spec.service,
        "executor": spec.executor,
        "target_name": target_name(spec.target),
        "target": canonical_json(spec.target).decode(),
        "parameters": canonical_json(spec.parameters).decode(),
        "axes": canonical_json(axes_of(spec)).decode(),
        "point": point_label(spec),
        "seed": _as_signed(spec.seed),
        "attempt": spec.attempt,
        "nodes": spec.resources.nodes,
        "gpus": spec.resources.gpus,
        "code_digest": spec.code_digest,
        "environment_digest": digest(dict(spec.environment)),
        "limits": canonical_json(spec.limits.model_dump(exclude_none=True)).decode(),
        "parallel": spec.parallel,
    }


def _happened(spec: TrialSpec, meta: Meta) -> Row:
    """What meta.json says."""
    queue_s, why = _queue(spec, meta)
    return {
        "runtime": meta.ran_in(spec.runtime),
        "failure_code": meta.failure.code if meta.failure else None,
        "failure_message": meta.failure.message if meta.failure else None,
        "warnings": [f"{warning.code}: {warning.message}" for warning in meta.warnings],
        "started": utc(meta.started),
        "ended": utc(meta.ended),
        "duration_s": meta.duration_s,
        "queue_s": queue_s,
        "cpu_s": _number(meta.usage.get("cpu_s")),
        "peak_memory_bytes": _whole(meta.usage.get("peak_memory_bytes")),
        "host": meta.host,
        "scheduler_path": scheduler_path(spec, meta),
        "scheduler_run_id": meta.slurm.get("array_job_id") or meta.slurm.get("job_id"),
        "job_uid": meta.slurm_job_id,
        "pod_uid": _text(meta.custom.get("pod_uid")),
        "git_commit": meta.git_commit,
        "git_dirty": meta.git_dirty,
        "package_lock_digest": meta.package_lock_digest,
        "custom": canonical_json(meta.custom).decode(),
        "unknown": explained({"queue_s": why} if queue_s is None else {}),
    }


def _queue(spec: TrialSpec, meta: Meta) -> tuple[float | None, str]:
    """Seconds in the queue, or why they are not known. By two clocks, which may disagree."""
    if spec.submitted is None:
        return None, f"the executor {spec.executor} has no queue of its own, or did not say when it was submitted"
    waited = (utc(meta.started) - utc(spec.submitted)).total_seconds()
    if waited < 0:
        return None, f"the clock of {meta.host} is at least {-waited:g} s behind that of the submitting machine"
    return waited, ""


Content = list[Row] | list[tuple[Row, Slices]]


def tabulate(trials: Sequence[TrialRows]) -> dict[str, Content]:
    """The rows of every table for one run, in their order; `trials` is not empty. Tables without rows are left out."""
    trial_rows = [one.trial for one in trials]
    tables: dict[str, list[Row]] = {
        RUN_FACT.name: [_run_row(trial_rows)],
        TRIAL_FACT.name: trial_rows,
        MEASUREMENT_FACT.name: [row for one in trials for row in one.measurements],
        WORKLOAD_DIM.name: workload_rows(trial_rows, _manifests_by_workload(trial_rows)),
        LINEAGE_DIM.name: [_lineage_row(trial_rows)],
        **{table: _found(table, trials) for table in OWN_IDS},
        **outcome_rows(trial_rows, {one.trial["trial_id"]: one.measurements for one in trials}),
    }
    for name, rows in tables.items():
        rows.sort(key=itemgetter(*TABLES[name].order))
    slices = [(one.trial, one.telemetry) for one in trials if len(one.telemetry)]
    slices.sort(key=lambda part: str(part[0]["trial_id"]))
    made: dict[str, Content] = {name: rows for name, rows in tables.items() if rows}
    return made | ({TELEMETRY_SLICE_FACT.name: slices} if slices else {})


def _found(table: str, trials: Sequence[TrialRows]) -> list[Row]:
    """The rows of one dimension, each with who had it."""
    name = OWN_IDS[table]
    groups: dict[str, list[TrialRows]] = {}
    for one in trials:
        groups.setdefault(one.dimensions[table][name], []).append(one)
    return [members[0].dimensions[table] | _run_keys([one.trial for one in members]) for members in groups.values()]


def _run_keys(trials: Sequence[Row]) -> Row:
    """The identity of a row that is about several trials of a run."""
    cases = sorted({row["benchmark_case_id"] for row in trials})
    return {
        "run_id": trials[0]["run_id"],
        "benchmark_case_id": cases[0] if len(cases) == 1 else digest(cases)[:16],
        "workload_spec_digest": digest(sorted({row["workload_spec_digest"] for row in trials})),
        "artifact_manifest_digest": _manifests_digest(trials),
    }


def _run_row(trials: Sequence[Row]) -> Row:
    first = min(trials, key=lambda row: (row["started"], row["trial_id"]))
    commits = {row["git_commit"] for row in trials}
    dirty = {row["git_dirty"] for row in trials} - {None}
    cases = sorted({row["benchmark_case_id"] for row in trials})
    succeeded = sum(row["outcome"] == "succeeded" for row in trials)
    waits = [row["queue_s"] for row in trials if row["queue_s"] is not None]
    said = "nothing in the evidence says"
    gaps = {"intent": said, "mode": said, "cadence": said}
    if not waits:
        gaps |= {"queue_s": json.loads(first["unknown"] or "{}").get("queue_s", "no trial says")}
    same = ("scenario", "plan_digest", "experiment", "experiment_version", "runtime")
    return {name: first[name] for name in same} | _shared_ids(trials, gaps) | _run_keys(trials) | {
        "executor": ", ".join(sorted({row["executor"] for row in trials})),
        "intent": None,
        "mode": None,
        "cadence": None,
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
    """What all trials of a run have in common; where they differ it is null, and `gaps` is told."""
    row = Row()
    for name in ("scheduler_path", "scheduler_run_id", *OWN_IDS.values()):
        found = sorted({each[name] for each in trials} - {None})
        row[name] = found[0] if len(found) == 1 else None
        if row[name] is None:
            gaps[name] = f"its trials had several: {', '.join(found)}" if found else "no batch system had it"
    return row


def _manifests_by_workload(trials: Sequence[Row]) -> dict[tuple[str, str], str]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in trials:
        groups.setdefault((row["workload_spec_digest"], row["benchmark_case_id"]), []).append(row)
    return {key: _manifests_digest(rows) for key, rows in groups.items()}


def _lineage_row(trials: Sequence[Row]) -> Row:
    return _run_keys(trials) | {
        "raw_uri": os.path.commonpath({os.path.dirname(row["folder"]) or "." for row in trials}),  # noqa: PTH120
        "trial_manifests": sorted(row["artifact_manifest_digest"] for row in trials),
        "signing_state": "unsigned",
    }


def _manifests_digest(trials: Sequence[Row]) -> str:
    return digest(sorted(row["artifact_manifest_digest"] for row in trials))


def _sealed_bytes(path: Path, manifest: Manifest, name: str = "") -> bytes:
    name = name or path.name
    entry = manifest.files.get(name)
    if entry is None:
        raise NotCollectable(f"{name} is not in the manifest")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise NotCollectable(f"{name} is not what was sealed: its sha256 differs from the manifest's")
    return content


def _place(workspace: WorkspaceFolder, folder: TrialFolder) -> str:
    path, root = os.path.realpath(folder.path), os.path.realpath(workspace.root)
    return path.removeprefix(f"{root.rstrip('/')}/")


def _as_signed(seed: int) -> int:
    """Seeds may use all 64 bits; the column is signed."""
    return seed if seed < 1 << 63 else seed - (1 << 64)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None
