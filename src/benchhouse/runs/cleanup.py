"""Sweep what was killed before it could tidy up: orchestrators, workers, keepers of servers."""

import contextlib
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from benchhouse.processes.owner import LEFTOVERS, TAG
from benchhouse.runs import services
from benchhouse.runs.keepers import bury, running_states, stop_keepers
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.layout import WorkspaceFolder


def sweep(services: Collection[Path], trials: Iterable[str] = ()) -> int:
    """End what has lost its owner, and what belongs to these trials: processes, cgroups, scratch folders.

    Of `services`, the folders of kept servers, those whose keeper was killed are said to be over. Returns how many
    processes were ended.
    """
    from benchhouse.processes.cgroups import sweep_cages
    from benchhouse.processes.owned import left_processes, sweep_scratch
    from benchhouse.processes.tree import kill_tree, tagged_processes

    left = {*left_processes(), *(pid for trial in trials for pid in tagged_processes(TAG, trial))}
    kill_tree(left, grace_s=0.0)
    sweep_cages(LEFTOVERS)
    sweep_scratch(LEFTOVERS)
    bury(services)
    return len(left)


def clean_up(workspace: WorkspaceFolder, ledger: Ledger) -> int:
    """Sweep what a run left, its servers and unfinished folders too; returns how many processes were ended.

    Call it as the run's owner.
    """
    from benchhouse.runs.leftovers import leftovers

    partials = leftovers(workspace, ledger.record.scenario, ledger.folder.run_id)
    folders = services.folders(ledger)
    stop_keepers([folder for folder, _ in running_states(folders)])
    swept = sweep(folders, [path.name.rpartition(".")[0] for path in partials])
    for path in partials:
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or in use
        (workspace.results / ledger.record.scenario / ".partial").rmdir()
    return swept
