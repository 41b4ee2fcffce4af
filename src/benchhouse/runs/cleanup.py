"""Clean up after processes that were killed before they could: orchestrators, workers, keepers of servers."""

import contextlib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

from benchhouse.evidence.folder import discard, read_spec
from benchhouse.processes.owned_names import sweep_temporaries
from benchhouse.processes.process_identity import TAG
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.runs.service_control import attached_folders, bury, running_states, stop_keepers
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder


def sweep(services: Collection[Path], trials: Iterable[str] = ()) -> int:
    """End processes, cgroups, and scratch folders that have lost their owner or belong to these trials.

    `services` are the folders of kept servers; those whose keeper was killed are marked as over. Return the number of
    processes that were ended.
    """
    from benchhouse.processes.cgroups import sweep_leftovers
    from benchhouse.processes.owned_names import left_processes
    from benchhouse.processes.tree import kill_tree, tagged_processes

    left = {*left_processes(), *(pid for trial in trials for pid in tagged_processes(TAG, trial))}
    kill_tree(left, grace_s=0.0)
    sweep_leftovers()
    bury(services)
    return len(left)


def clean_up(workspace: WorkspaceFolder, ledger: Ledger) -> int:
    """Clean up after a run as its owner, also servers and unfinished folders. Return the number of ended processes."""
    partials = leftovers(workspace, ledger.record.scenario, ledger.folder.run_id)
    folders = attached_folders(ledger)
    stop_keepers([folder for folder, _ in running_states(folders)])
    swept = sweep(folders, [path.name.rpartition(".")[0] for path in partials])
    for path in partials:
        discard(path)
    sweep_temporaries(ledger.folder.path)
    with contextlib.suppress(OSError):  # missing, or in use
        (workspace.results / ledger.record.scenario / ".partial").rmdir()
    return swept


def leftovers(workspace: WorkspaceFolder, scenario: str, run_id: str) -> list[Path]:
    """Return the unfinished folders of this run, whose orchestrator was killed, and of other runs without an owner."""
    folder = workspace.results / scenario / ".partial"

    @cache
    def abandoned(other: str) -> bool:
        ledger = Ledger(workspace.run(other))
        return other == run_id or (ledger.owner() is None and not ledger.goes_on())

    def is_left(path: Path) -> bool:
        try:
            return abandoned(read_spec(TrialFolder(path)).run_id)
        except (OSError, ValueError):  # killed while it was being made, or another run is making it
            return all(abandoned(other) for other in list_runs(workspace))

    return [path for path in sorted(folder.glob("*")) if is_left(path)]
