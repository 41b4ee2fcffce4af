"""Writing, sealing and reading trial folders. Whatever is killed at any moment, a folder is whole or not sealed."""

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path

from benchhouse.evidence.manifest import Manifest, describe
from benchhouse.evidence.writing import now, write_text
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.measurement import Measurement, MetricsFile
from benchhouse.schema.trial import Meta, Outcome, TrialSpec

CSV_COLUMNS = (
    "trial_id", "run_id", "metric", "stat", "value", "unit", "direction", "n", "scope", "window",
)  # fmt: skip


def write_metrics_csv(path: Path, spec: TrialSpec, measurements: Iterable[Measurement]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in measurements:
        writer.writerow(
            [spec.trial_id, spec.run_id, row.metric, row.stat, repr(row.value), row.unit, row.direction or "",
             row.n, row.scope, row.window]
        )  # fmt: skip
    write_text(path, text.getvalue(), sync=False)


def tidy(folder: Path) -> list[str]:
    """Make a folder fit to be sealed; returns what was taken out or renamed.

    Links, pipes, sockets and devices go: they hold no evidence, and a pipe would be read for ever. A name that is no
    UTF-8 can't stand in a manifest. What its owner may not read is made readable.
    """
    changed: list[str] = []
    waiting = [folder]
    while waiting:
        for entry in list(os.scandir(waiting.pop())):
            path = Path(entry.path)
            is_folder, is_file = entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
            shown = path.relative_to(folder).as_posix().encode("utf-8", "backslashreplace").decode()
            if not is_folder and not is_file:
                path.unlink()
                changed.append(f"{shown} (not a plain file, removed)")
                continue
            name = entry.name.encode("utf-8", "backslashreplace").decode()
            if name != entry.name:
                path = path.rename(path.with_name(name))
                changed.append(f"{shown} (renamed: its name was no UTF-8)")
            wanted = 0o700 if is_folder else 0o400
            mode = path.stat().st_mode & 0o777
            if mode & wanted != wanted:
                path.chmod(mode | wanted)
            if is_folder:
                waiting.append(path)
    return changed


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
