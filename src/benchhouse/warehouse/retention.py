"""Retention: samples are removed first, then rows of tables, then evidence, and never the evidence of a claim."""

import gzip
import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.retention import Pruned, Pruning, Retention
from benchhouse.warehouse.ingest import open_catalog, sealed_folders

_DAY_S = 86400.0


@dataclass
class _Run:
    """A run by its evidence: when its last trial ended, its folders, and every name of it."""

    run_id: str
    ended: datetime
    folders: list[Path] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def is_named_in(self, claim: bytes) -> bool:
        """Return whether the claim names the run, one of its trials, or one of their manifests."""
        return any(name.encode() in claim for name in self.names)


def prune(workspace: WorkspaceFolder, policy: Retention, now: datetime, *, dry_run: bool) -> Pruning:
    """Remove what is older than the policy allows. `pinned` names what a claim keeps."""
    runs, claims = _runs(workspace), _claims(workspace)
    held = {}
    for run in runs:
        if claim := next((name for name, content in claims.items() if run.is_named_in(content)), None):
            held[run.run_id] = claim
    gone = [*_prune_monitors(workspace, policy.hot, now, dry_run)]
    with open_catalog(workspace) as catalog:
        known = {entry.run_id: entry for entry in catalog.runs()}
        for run_id in sorted(known):
            age_s = (now - datetime.fromisoformat(known[run_id].ended)).total_seconds()
            if age_s <= policy.warm or run_id in held:
                continue
            files = catalog.files_of(run_id)
            size = sum(_size(workspace.warehouse / entry.file) for entry in files)
            gone.append(_pruned("warm", run_id, age_s, size, known[run_id].trials))
            if not dry_run:
                catalog.forget_run(run_id, files)
    pinned = []
    for run in runs:
        age_s = (now - run.ended).total_seconds()
        if run.run_id in held and age_s > policy.warm:
            pinned.append(f"{run.run_id}: {held[run.run_id]}")
        elif age_s > policy.cold:
            gone.append(_pruned("cold", run.run_id, age_s, sum(map(_size, run.folders)), len(run.folders)))
            if not dry_run:
                _remove(workspace, run.folders)
    return Pruning(dry_run=dry_run, policy=policy, gone=gone, pinned=pinned)


def _runs(workspace: WorkspaceFolder) -> list[_Run]:
    """Return all runs that have sealed evidence. Unreadable evidence is left alone."""
    runs: dict[str, _Run] = {}
    for path in sealed_folders(workspace):
        folder = TrialFolder(path)
        try:
            sealed = folder.manifest.read_bytes()
            run_id = str(json.loads(sealed)["run_id"])
            ended = datetime.fromisoformat(json.loads(folder.meta.read_bytes())["ended"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        ended = ended if ended.tzinfo else ended.replace(tzinfo=UTC)
        run = runs.setdefault(run_id, _Run(run_id, ended, names={run_id}))
        run.ended = max(run.ended, ended)
        run.folders += [path, *sorted(path.parent.glob(f"{path.name}.attempt-*"))]
        run.names |= {path.name, hashlib.sha256(sealed).hexdigest()}
    return [runs[run_id] for run_id in sorted(runs)]


def _claims(workspace: WorkspaceFolder) -> dict[str, bytes]:
    """Return the content of every file of claims/. An unreadable file could pin anything, so nothing is pruned then."""
    claims = {}
    folder = workspace.root / "claims"
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if not path.is_file():
            continue
        name = path.relative_to(workspace.root).as_posix()
        try:
            content = path.read_bytes()
            claims[name] = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        except (OSError, EOFError, ValueError) as error:
            raise BenchError(
                f"{name} can't be read, so the runs that it needs are unknown: nothing is pruned ({error})",
                hint="Mend it or move it away; then again: bench warehouse prune --dry-run",
            ) from error
    return claims


def _prune_monitors(workspace: WorkspaceFolder, hot_s: float, now: datetime, dry_run: bool) -> Iterable[Pruned]:
    for path in sorted(workspace.monitors.glob("*")):
        newest = max(item.lstat().st_mtime for item in (path, *path.rglob("*")))
        age_s = now.timestamp() - newest
        if path.is_dir() and not path.is_symlink() and age_s > hot_s:
            yield _pruned("hot", path.relative_to(workspace.root).as_posix(), age_s, _size(path))
            if not dry_run:
                shutil.rmtree(path)


def _remove(workspace: WorkspaceFolder, folders: Iterable[Path]) -> None:
    home = workspace.results.resolve()
    for folder in folders:
        if folder.is_symlink() or not folder.resolve().is_relative_to(home):
            continue  # it is not ours to delete
        shutil.rmtree(folder)


def _pruned(tier: Literal["hot", "warm", "cold"], what: str, age_s: float, size: int, trials: int = 0) -> Pruned:
    return Pruned(tier=tier, what=what, age_days=round(age_s / _DAY_S, 1), trials=trials, size=size)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())
