"""From sealed trial folders to the rows of every table. Nothing is written here."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchhouse.evidence.manifest import Manifest
from benchhouse.schema.digests import canonical_json, digest
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.problems import printable
from benchhouse.schema.telemetry import TelemetrySummary
from benchhouse.schema.trial import Meta, TrialSpec
from benchhouse.warehouse.tables import (
    LINEAGE_DIM,
    MEASUREMENT_FACT,
    RUN_FACT,
    TABLES,
    TELEMETRY_SLICE_FACT,
    TRIAL_FACT,
    WORKLOAD_DIM,
    Row,
)

_LABEL_LENGTH = 80


@dataclass(frozen=True)
class TrialRows:
    """What one trial adds to the tables: a row of trial_fact, its measurements and what monitors saw of it."""

    trial: Row
    measurements: Sequence[Row]
    telemetry: Sequence[Row] = ()


class NotCollectable(Exception):  # noqa: N818 - a reason, told to the user in a list
    """Why a folder does not enter the tables."""


def read_folder(workspace: Workspace, folder: TrialFolder) -> TrialRows:
    """Read one sealed folder. What is read must be what was sealed: the digests of the manifest are checked."""
    try:
        sealed = folder.manifest.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotCollectable("no manifest.json: not finished") from error
    except OSError as error:
        raise NotCollectable(f"manifest.json: {error.strerror}") from error
    try:
        manifest = Manifest.model_validate_json(sealed)
        spec = TrialSpec.model_validate_json(_sealed_bytes(folder.spec, manifest))
        meta = Meta.model_validate_json(_sealed_bytes(folder.meta, manifest))
        measurements: list[Measurement] = []
        if folder.metrics.name in manifest.files:  # a trial that was lost has none
            metrics = MetricsFile.model_validate_json(_sealed_bytes(folder.metrics, manifest))
            measurements = metrics.benchhouse.measurements
        if not spec.trial_id == meta.trial_id == manifest.trial_id or not spec.run_id == meta.run_id == manifest.run_id:
            raise NotCollectable("trial.json, meta.json and manifest.json name different trials or runs")
        summary = None
        if any(name.startswith("telemetry/") and name.endswith(".parquet") for name in manifest.files):
            content = _sealed_bytes(folder.telemetry_summary, manifest, "telemetry/summary.json")
            summary = TelemetrySummary.model_validate_json(content)
        place = _place(workspace, folder)
        return make_rows(spec, meta, measurements, hashlib.sha256(sealed).hexdigest(), place, summary)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise NotCollectable(f"{error.title} can't be read: {where + ': ' if where else ''}{first['msg']}") from error
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
    axes = _axes(spec)
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
    trial = shared | {
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
        "runtime": spec.runtime.kind,
        "target_name": _target_name(spec.target),
        "target": canonical_json(spec.target).decode(),
        "parameters": canonical_json(spec.parameters).decode(),
        "axes": canonical_json(axes).decode(),
        "point": point_label(spec),
        "seed": _as_signed(spec.seed),
        "attempt": spec.attempt,
        "failure_code": meta.failure.code if meta.failure else None,
        "failure_message": meta.failure.message if meta.failure else None,
        "warnings": [f"{warning.code}: {warning.message}" for warning in meta.warnings],
        "started": _utc(meta.started),
        "ended": _utc(meta.ended),
        "duration_s": meta.duration_s,
        "cpu_s": _number(meta.usage.get("cpu_s")),
        "peak_memory_bytes": _whole(meta.usage.get("peak_memory_bytes")),
        "host": meta.host,
        "git_commit": meta.git_commit,
        "git_dirty": meta.git_dirty,
        "package_lock_digest": meta.package_lock_digest,
        "code_digest": spec.code_digest,
        "environment_digest": digest(dict(spec.environment)),
        "limits": canonical_json(spec.limits.model_dump(exclude_none=True)).decode(),
        "parallel": spec.parallel,
        "folder": folder,
    }
    rows = [
        shared
        | {
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
    return TrialRows(trial, rows, [shared | row for row in _slices(telemetry)] if telemetry else [])


def _slices(telemetry: TelemetrySummary) -> Iterator[Row]:
    """One row a scope, series and phase; a phase in several parts is one, from the first to the last."""
    ends: dict[str, tuple[float, float]] = {}
    for phase in telemetry.phases:
        begin_s, end_s = ends.get(phase.name, (phase.begin_s, phase.end_s))
        ends[phase.name] = min(begin_s, phase.begin_s), max(end_s, phase.end_s)
    for scope, found in telemetry.scopes.items():
        for name, one in found.series.items():
            for phase_name, stats in one.phases.items():
                yield stats.model_dump() | {
                    "phase": phase_name,
                    "scope": scope,
                    "series": name,
                    "family": one.family,
                    "kind": one.kind,
                    "unit": one.unit,
                    "begin_s": ends[phase_name][0],
                    "end_s": ends[phase_name][1],
                    "interval_s": telemetry.interval_s,
                }


def tabulate(trials: Sequence[TrialRows]) -> dict[str, list[Row]]:
    """The rows of every table for one run, in their order; `trials` is not empty."""
    trial_rows = [one.trial for one in trials]
    tables = {
        RUN_FACT.name: [_run_row(trial_rows)],
        TRIAL_FACT.name: trial_rows,
        MEASUREMENT_FACT.name: [row for one in trials for row in one.measurements],
        TELEMETRY_SLICE_FACT.name: [row for one in trials for row in one.telemetry],
        WORKLOAD_DIM.name: _workload_rows(trial_rows),
        LINEAGE_DIM.name: [_lineage_row(trial_rows)],
    }
    for name, rows in tables.items():
        order = TABLES[name].order
        rows.sort(key=lambda row: tuple(row[column] for column in order))
    return tables


def _run_row(trials: Sequence[Row]) -> Row:
    first = min(trials, key=lambda row: (row["started"], row["trial_id"]))
    commits = {row["git_commit"] for row in trials}
    dirty = {row["git_dirty"] for row in trials} - {None}
    cases = sorted({row["benchmark_case_id"] for row in trials})
    succeeded = sum(row["outcome"] == "succeeded" for row in trials)
    same = ("run_id", "scenario", "plan_digest", "experiment", "experiment_version", "runtime")
    return {name: first[name] for name in same} | {
        "executor": ", ".join(sorted({row["executor"] for row in trials})),
        "started": first["started"],
        "ended": max(row["ended"] for row in trials),
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
        "workload_spec_digest": _workloads_digest(trials),
        "artifact_manifest_digest": _manifests_digest(trials),
    }


def _workload_rows(trials: Sequence[Row]) -> list[Row]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in trials:
        groups.setdefault((row["workload_spec_digest"], row["benchmark_case_id"]), []).append(row)
    same = ("workload_spec_digest", "run_id", "benchmark_case_id", "experiment", "experiment_version", "parameters")
    return [
        {name: rows[0][name] for name in same} | {"artifact_manifest_digest": _manifests_digest(rows)}
        for rows in groups.values()
    ]


def _lineage_row(trials: Sequence[Row]) -> Row:
    return {
        "run_id": trials[0]["run_id"],
        "raw_uri": os.path.commonpath([Path(row["folder"]).parent for row in trials]),
        "workload_spec_digest": _workloads_digest(trials),
        "artifact_manifest_digest": _manifests_digest(trials),
        "trial_manifests": sorted(row["artifact_manifest_digest"] for row in trials),
        "signing_state": "unsigned",
    }


def _workloads_digest(trials: Sequence[Row]) -> str:
    return digest(sorted({row["workload_spec_digest"] for row in trials}))


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


def _place(workspace: Workspace, folder: TrialFolder) -> str:
    path, root = folder.path.resolve(), workspace.root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def _axes(spec: TrialSpec) -> dict[str, Any]:
    return {name: _axis_value(spec, name) for name in spec.axes}


def _axis_value(spec: TrialSpec, name: str) -> Any:
    """The value of one axis: `target.x`, `workload.x`, or a bare name that is looked for in both."""
    head, _, rest = name.partition(".")
    if head == "target" and rest:
        return _look_up(spec.target, rest)
    if head == "workload" and rest:
        return _look_up(spec.parameters, rest)
    found = _look_up(spec.parameters, name)
    if found is None:
        found = _look_up(spec.target, name)
    return spec.target if found is None and name == "target" else found


def _look_up(values: Any, path: str) -> Any:
    if isinstance(values, dict) and path in values:
        return values[path]
    for key in path.split("."):
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    return values


def point_label(spec: TrialSpec) -> str:
    """The values of a trial's axes on one line, as every table shows them."""
    return _label(_axes(spec))


def _label(axes: dict[str, Any]) -> str:
    bare = [name.removeprefix("target.").removeprefix("workload.") for name in axes]
    names = bare if len(set(bare)) == len(bare) else list(axes)
    return " ".join(f"{name}={_short(value)}" for name, value in zip(names, axes.values(), strict=True))


def _target_name(target: dict[str, Any]) -> str:
    if isinstance(target.get("name"), str):
        return str(target["name"])
    scalars = {key: value for key, value in sorted(target.items()) if not isinstance(value, dict | list | None)}
    text = " ".join(f"{key}={_short(value)}" for key, value in scalars.items())
    return text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"


def _short(value: Any) -> str:
    """One line, whatever the value: a line break in it reads `\\n`."""
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        value = value["name"]
    if isinstance(value, str):
        return printable(value)
    return canonical_json(value).decode()


def _utc(text: str) -> datetime:
    """A time as the tables hold it: UTC, without a zone, cut to milliseconds."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


def _as_signed(seed: int) -> int:
    """Seeds may use all 64 bits; the column is signed."""
    return seed if seed < 1 << 63 else seed - (1 << 64)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None
