"""The sealed trials of a run, and the files of each: `ws["@last"].trials()`, `ws["@last"].evidence("ab12...")`."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pydantic import ValidationError

from benchhouse.evidence.folder import list_sealed, read_manifest, read_spec
from benchhouse.evidence.verify import Damage, verify
from benchhouse.runs import evidence_transfer
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.sharing import settings, store_of
from benchhouse.schema.errors import BenchError, NotFoundError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.catalog import FILE_NAME
from benchhouse.warehouse.labels import point_label
from benchhouse.warehouse.query import Warehouse, own

_IN_TABLES = "SELECT trial_id, point, target_name FROM trial_fact WHERE run_id = $run"
_PULLED = """
SELECT scenario, trial_id, attempt, outcome, point, target_name, artifact_manifest_digest FROM trial_fact
WHERE run_id = $run ORDER BY ended, trial_id"""
_SCENARIO = "SELECT scenario FROM benchmark_run_fact WHERE run_id = $run"
_PLACES = "SELECT raw_uri, store_uris FROM artifact_lineage_dim WHERE run_id = $run"


@dataclass(frozen=True)
class SealedTrial:
    """One attempt at a trial of a run."""

    name: str
    """Name of the folder: the id of the trial, with `.attempt-N` if a later attempt superseded it."""
    trial_id: str
    attempt: int
    outcome: str
    point: str
    manifest: str
    """SHA-256 of the manifest, from the ledger or, for a pulled run, from the tables; empty if they do not have it."""
    here: bool = True
    """Whether the folder is in this workspace."""


@dataclass(frozen=True)
class SealedFile:
    """One file of a sealed trial."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class TrialEvidence:
    """The content of one sealed folder."""

    trial: SealedTrial
    folder: Path
    sealed: str
    """When it was sealed, UTC."""
    files: list[SealedFile]

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading. Only files that the manifest names can be opened, and no link is followed."""
        if name not in {file.name for file in self.files}:
            raise NotFoundError(f"{name} is no file of trial {self.trial.name}", "its manifest names those that are")
        try:
            return _open_inside(self.folder, name)
        except OSError as error:
            message = f"{name} of trial {self.trial.name} can't be read: {error.strerror or error}"
            raise BenchError(message, "see: bench verify") from error

    def verify(self) -> list[Damage]:
        """Hash every file again, and return the differences from the sealed state."""
        return verify(TrialFolder(self.folder), self.trial.manifest or None)


def trials(workspace: WorkspaceFolder, run_id: str) -> list[SealedTrial]:
    """Return every sealed attempt, in the order in which they ended; for a pulled run, the trials that the tables
    name."""
    if not workspace.run(run_id).record.is_file():
        return _pulled(workspace, run_id)
    ledger = Ledger(workspace.run(run_id))
    scenario, points = ledger.record.scenario, _points(workspace, run_id)
    sealed = {
        (event.trial_id, event.attempt or 1): event
        for event in ledger.events()
        if event.event == "ended" and event.trial_id and event.manifest
    }
    listed = []
    for (trial_id, attempt), event in sealed.items():
        aside = workspace.superseded(scenario, trial_id, attempt)
        folder = aside if aside.path.exists() else workspace.trial(scenario, trial_id)
        point = points.get(trial_id) or _point(folder)
        name, digest = folder.path.name, event.manifest or ""
        listed.append(SealedTrial(name, trial_id, attempt, event.outcome or "", point, digest))
    return listed


def evidence(workspace: WorkspaceFolder, run_id: str, name: str, *, fetch: bool = False) -> TrialEvidence:
    """Return the files of a trial, by the name of its folder. With `fetch`, a folder that is not here is fetched."""
    trial = next((item for item in trials(workspace, run_id) if item.name == name), None)
    if trial is None:
        raise NotFoundError(f"run {run_id} has no sealed trial '{name}'", f"see: bench show {run_id}")
    if not trial.here:
        if not fetch or (sharing := settings(workspace)) is None or not sharing.evidence:
            raise _elsewhere(workspace, run_id, name)
        evidence_transfer.fetch(workspace, *store_of(workspace, sharing), run_id, name, trial.manifest)
    folder = _folder(workspace, run_id, name)
    try:
        manifest = read_manifest(folder)
    except (OSError, ValidationError) as error:
        raise NotFoundError(f"the evidence of trial {name} is not here", f"see: bench verify {run_id}") from error
    files = [SealedFile(file, entry.bytes, entry.sha256) for file, entry in manifest.files.items()]
    return TrialEvidence(trial, folder.path, manifest.sealed, files)


def _folder(workspace: WorkspaceFolder, run_id: str, name: str) -> TrialFolder:
    if workspace.run(run_id).record.is_file():
        return workspace.trial(Ledger(workspace.run(run_id)).record.scenario, name)
    with Warehouse.open(workspace) as warehouse:
        scenario = warehouse.query(_SCENARIO, {"run": run_id}, runs=[run_id]).rows[0][0]
    return _inside(workspace, scenario, name)


def _pulled(workspace: WorkspaceFolder, run_id: str) -> list[SealedTrial]:
    """Return the trials in the tables, and superseded attempts at them that are in this workspace."""
    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query(_PULLED, {"run": run_id}, runs=[run_id]).rows
    listed = []
    for scenario, trial_id, attempt, outcome, point, target, manifest in rows:
        here = _inside(workspace, scenario, trial_id).sealed
        listed.append(SealedTrial(trial_id, trial_id, attempt, outcome, point or target, manifest, here))
    scenario, trial_ids = rows[0][0] if rows else "", {trial.trial_id for trial in listed}
    for path in list_sealed(workspace.results, scenario) if rows else ():
        trial_id, aside, _ = path.name.partition(".")
        if aside and trial_id in trial_ids:
            spec, outcome = read_spec(TrialFolder(path)), read_manifest(TrialFolder(path)).outcome
            listed.append(SealedTrial(path.name, trial_id, spec.attempt, outcome, point_label(spec), ""))
    return listed


def _inside(workspace: WorkspaceFolder, scenario: str, trial: str) -> TrialFolder:
    """Return the folder of a trial that tables name. The tables come from elsewhere, so the names are checked."""
    if any("/" in name or "\0" in name or name.startswith(".") for name in (scenario, trial)):
        raise BenchError(f"{scenario[:80]!r}, {trial[:80]!r}: not the names of a scenario and a trial")
    return workspace.trial(scenario, trial)


def _elsewhere(workspace: WorkspaceFolder, run_id: str, name: str) -> NotFoundError:
    """Return the error that the evidence is not here. Its hint names the location from the run's lineage."""
    with Warehouse.open(workspace) as warehouse:
        places = [*(warehouse.query(_PLACES, {"run": run_id}, runs=[run_id]).rows or [("", [])])[0]]
    stores = [place.partition("/trials/")[0] for place in places[1] or ()]
    hint = f"bench evidence pull {stores[0]} --run {run_id}" if stores else f"it was sealed in {places[0]}"
    return NotFoundError(f"the evidence of trial {name} is not here", hint)


def _points(workspace: WorkspaceFolder, run_id: str) -> dict[str, str]:
    if not (workspace.warehouse / FILE_NAME).exists():
        return {}
    with Warehouse.open(workspace) as warehouse:
        rows = warehouse.query(own(_IN_TABLES), {"run": run_id}, runs=[run_id]).rows
    return {trial_id: point or target for trial_id, point, target in rows}


def _point(folder: TrialFolder) -> str:
    try:
        return point_label(read_spec(folder))
    except (OSError, ValueError):
        return ""


def _open_inside(folder: Path, name: str) -> BinaryIO:
    *outer, last = PurePosixPath(name).parts
    if last == ".." or ".." in outer or name.startswith("/"):
        raise OSError(f"{name} is not inside the folder")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in outer:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        file = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    finally:
        os.close(handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{name} is no plain file")
    return os.fdopen(file, "rb")
