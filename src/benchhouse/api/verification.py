"""Hash sealed evidence again: a run, a folder, or everything that the tables and claims of a workspace rest on."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchhouse.claims import claim_files
from benchhouse.evidence.folder import list_sealed
from benchhouse.evidence.verify import Damage, verify
from benchhouse.runs.execution import unrecorded
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.runs.selection import find_run
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.warehouse.audit import audit_tables, collected_folders, outdated_runs


@dataclass(frozen=True)
class Verification:
    """How many sealed folders were checked, and what is damaged."""

    checked: int
    damage: list[Damage]
    outdated: list[str]
    """Runs whose tables were made by an older benchhouse: this is not damage, but rebuilt tables hold more."""

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage


def verify_what(workspace: WorkspaceFolder, what: str | os.PathLike[str] | None) -> Verification:
    """Verify a run, the folder of a trial, or everything."""
    if what is None:
        return verify_all(workspace)
    if Path(what).is_dir():
        return verify_folder(Path(what))
    return verify_run(workspace, find_run(workspace, str(what)))


def verify_run(workspace: WorkspaceFolder, run_id: str) -> Verification:
    """Verify every sealed folder of a run, including superseded attempts, and each manifest against the ledger.

    A run that was pulled from elsewhere has no ledger here: its folders are checked against their manifests only.
    """
    if run_id not in list_runs(workspace):
        folders = unrecorded(workspace, "", run_id, ())
        return Verification(len(folders), [item for folder in folders for item in verify(folder)], [])
    sealed = _recorded(workspace, run_id)
    damage = [item for path, manifest in sealed.items() for item in verify(TrialFolder(path), manifest)]
    scenario = Ledger(workspace.run(run_id)).record.scenario
    strays = unrecorded(workspace, scenario, run_id, {path.name.partition(".")[0] for path in sealed})
    for folder in strays:
        damage += verify(folder)
    return Verification(len(sealed) + len(strays), damage, [])


def _recorded(workspace: WorkspaceFolder, run_id: str) -> dict[Path, str]:
    """Return the folders of a run by its ledger, including superseded attempts, with the digest of each sealed
    manifest."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    attempts: dict[tuple[str, int], str] = {}
    for event in ledger.events():
        if event.event == "ended" and event.trial_id and event.manifest:
            attempts[event.trial_id, event.attempt or 1] = event.manifest
    sealed = {}
    for (name, attempt), manifest in attempts.items():
        aside = workspace.superseded(scenario, name, attempt)
        sealed[aside.path if aside.path.exists() else workspace.trial(scenario, name).path] = manifest
    return sealed


def verify_all(workspace: WorkspaceFolder) -> Verification:
    """Verify the sealed trials that are here or that tables or ledgers list, the tables, their catalog, and the
    claims."""
    if not workspace.warehouse.exists() and not workspace.results.exists():
        return Verification(0, [], [])  # nothing was ever run here
    lines = audit_tables(workspace)
    folders = _all_folders(workspace, {} if lines else collected_folders(workspace))
    damage = [item for path, sealed in sorted(folders.items()) for item in verify(TrialFolder(path), sealed)]
    damage += [Damage(trial="warehouse", file=".", kind="changed", detail=line) for line in lines]
    for claim_id in claim_files.list_ids(workspace):
        try:
            claim_files.read(workspace, claim_id)
        except BenchError as error:
            damage.append(Damage(trial="claims", file=f"{claim_id}.json", kind="changed", detail=error.message))
    readable = workspace.warehouse.exists() and not lines  # a damaged catalog can't show which runs are outdated
    return Verification(len(folders), damage, outdated_runs(workspace) if readable else [])


def _all_folders(workspace: WorkspaceFolder, collected: Mapping[Path, str]) -> dict[Path, str | None]:
    """Return trial folders, including superseded attempts, with the manifest digest that tables or ledger hold.

    A ledger also lists missing folders and those that a rebuild took out of the tables. If no folder of a run is left
    here, the run was pruned or moved away, and none is returned.
    """
    found: dict[Path, str | None] = dict.fromkeys(list_sealed(workspace.results))
    found |= collected
    for run_id in list_runs(workspace):
        with contextlib.suppress(BenchError):  # skip damaged records only: unreadable ones must not pass
            known = _recorded(workspace, run_id)
            if not found.keys().isdisjoint(known):
                found |= known
    return found


def verify_folder(path: Path) -> Verification:
    """Verify one trial's folder, wherever it is."""
    return Verification(1, verify(TrialFolder(path)), [])
