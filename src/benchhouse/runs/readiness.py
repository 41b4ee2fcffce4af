"""The last questions before jobs go out: would they find what they need, and is there room for what they bring?"""

from pathlib import Path

from benchhouse.runs import disk_space, fetch
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Prepared
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder


def check(workspace: WorkspaceFolder, prepared: Prepared, unfinished: Ledger | None) -> str:
    """Raises BenchError where a run could not come to its end; returns a warning, or nothing.

    `unfinished` is the run that would be resumed: its ended trials need no more room.
    """
    if prepared.plan.scenario.executor != "local":
        _require_shared(workspace, prepared)
        fetch.require(workspace, prepared)
    ended = sum(event.event == "ended" for event in unfinished.events()) if unfinished else 0
    return disk_space.check_room(workspace, prepared, max(0, prepared.plan.trial_count - ended))


def _require_shared(workspace: WorkspaceFolder, prepared: Prepared) -> None:
    shared = [Path(folder) for folder in prepared.site.folders.shared if "$" not in folder]
    home = workspace.root.resolve()
    if shared and not any(folder.resolve() in (home, *home.parents) for folder in shared):
        raise BenchError(
            f"the workspace {home} is not seen by the nodes of site '{prepared.site.site}'",
            f"use one below {', '.join(map(str, shared))}: bench -C DIR ...",
        )
