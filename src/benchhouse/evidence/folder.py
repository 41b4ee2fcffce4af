"""Writing, sealing and reading trial folders. Whatever is killed at any moment, a folder is whole or not sealed."""

import csv
import io
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from benchhouse.evidence.manifest import Manifest, describe
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.model import Model
from benchhouse.schema.trial import Meta, Outcome, TrialSpec

CSV_COLUMNS = (
    "trial_id", "run_id", "metric", "stat", "value", "unit", "direction", "n", "scope", "window",
)  # fmt: skip


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_model(path: Path, model: Model) -> None:
    write_text(path, model.model_dump_json(indent=2, by_alias=True) + "\n")


def write_metrics_csv(path: Path, spec: TrialSpec, measurements: Iterable[Measurement]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in measurements:
        writer.writerow(
            [spec.trial_id, spec.run_id, row.metric, row.stat, repr(row.value), row.unit, row.direction or "",
             row.n, row.scope, row.window]
        )  # fmt: skip
    write_text(path, text.getvalue())


def seal(folder: TrialFolder, spec: TrialSpec, outcome: Outcome) -> Path:
    """Write the manifest and move the folder to its final place; returns that place.

    Every file is on disk before the manifest is, and the manifest before the rename.
    """
    for name in sorted(path for path in folder.path.rglob("*") if not path.is_symlink()):
        _sync(name)
    manifest = Manifest(
        trial_id=spec.trial_id,
        run_id=spec.run_id,
        scenario=spec.scenario,
        outcome=outcome,
        sealed=now(),
        files=describe(folder.path),
    ).signed_off()
    write_text(folder.manifest, manifest.text())
    _sync(folder.path)
    final = Path(spec.final)
    folder.path.rename(final)
    _sync(final.parent)
    return final


def read_spec(folder: TrialFolder) -> TrialSpec:
    return TrialSpec.model_validate_json(folder.spec.read_bytes())


def read_meta(folder: TrialFolder) -> Meta:
    return Meta.model_validate_json(folder.meta.read_bytes())


def read_metrics(folder: TrialFolder) -> MetricsFile:
    return MetricsFile.model_validate_json(folder.metrics.read_bytes())


def read_manifest(folder: TrialFolder) -> Manifest:
    return Manifest.model_validate_json(folder.manifest.read_bytes())


def sealed_outcome(folder: TrialFolder) -> Outcome | None:
    """How a sealed trial ended, or None when the folder is not sealed."""
    try:
        return read_manifest(folder).outcome
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, ValueError):
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
