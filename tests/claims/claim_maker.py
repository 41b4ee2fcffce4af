"""Workspaces with sealed trials that are worth a claim, and such that are not."""

import json
from pathlib import Path
from typing import Any

from trial_maker import make_trial

from benchhouse.api.claims import Claims
from benchhouse.api.opening import open_workspace
from benchhouse.evidence.folder import read_spec, seal
from benchhouse.schema.claim import Claim
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.ingest import collect

STEADY = (100.0, 101.0, 99.5, 100.4, 99.9)
NUMBER = "run-s:name=hnsw:qps"


def fill(workspace: WorkspaceFolder) -> WorkspaceFolder:
    """Run run-s: flat and then hnsw, five steady trials each; hnsw is 10% faster."""
    for target, factor, minute in (("flat", 1.0, 0), ("hnsw", 1.1, 10)):
        for at, value in enumerate(STEADY, start=1):
            make_trial(workspace, "run-s", at, target=target, value=value * factor, samples=True, minute=minute)
    recollect(workspace, "run-s")
    return workspace


def make_altered(
    workspace: WorkspaceFolder, run_id: str, at: int, value: float, *, meta: dict[str, Any], spec: dict[str, Any]
) -> None:
    """One sealed trial whose meta.json and trial.json say something else than usual."""
    path = make_trial(workspace, run_id, at, value=value, sealed=False)
    for name, changes in (("meta.json", meta), ("trial.json", spec)):
        told = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(told | changes))
    folder = TrialFolder(path)
    seal(folder, read_spec(folder), "succeeded")


def make_run_of(
    workspace: WorkspaceFolder, run_id: str, values: tuple[float, ...], *, meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> str:  # fmt: skip
    """A run of one point with these values; returns its number."""
    for at, value in enumerate(values, start=1):
        make_altered(workspace, run_id, at, value, meta=meta or {}, spec=spec or {})
    recollect(workspace, run_id)
    return f"{run_id}:qps"


def recollect(workspace: WorkspaceFolder, run_id: str) -> None:
    folders = [path.parent for path in workspace.results.glob("*/*/manifest.json")]
    ours = [path for path in folders if json.loads((path / "manifest.json").read_text())["run_id"] == run_id]
    collect(workspace, run_id, ours)


def claims_of(workspace: WorkspaceFolder) -> Claims:
    return open_workspace(workspace.root).claims


def make(
    workspace: WorkspaceFolder, number: str = NUMBER, against: str | None = None, *, realism: bool = False
) -> Claim:
    return claims_of(workspace).make(number, against, realism=realism)


def export(workspace: WorkspaceFolder, claim: Claim, target: Path, *, with_raw: bool = False) -> Path:
    return claims_of(workspace).export(claim.id, target, with_raw=with_raw)[0]
