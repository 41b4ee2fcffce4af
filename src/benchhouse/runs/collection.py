"""Sealed trials go into the warehouse; runs whose jobs outlive us are looked at first."""

from dataclasses import dataclass
from pathlib import Path

from benchhouse.runs.execution import turn
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.schema.errors import BenchError, Exit, unwritable
from benchhouse.schema.layout import WorkspaceFolder


@dataclass(frozen=True)
class Collected:
    """What a collection put into the tables, and what it could not."""

    run_id: str
    trials: int
    rows: int
    skipped: tuple[str, ...] = ()
    """Sealed trials that could not be read, each with the reason."""
    under_way: int = 0
    """Trials whose jobs go on without us."""
    unread_events: int = 0
    """Events of the ledger that a newer version wrote and this one can't read."""


def trial_folders(workspace: WorkspaceFolder, run_id: str, unread: list[str] | None = None) -> list[Path]:
    """The sealed folders of a run, by its ledger; `unread` is given the lines of that which can't be read."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    ended = (event.trial_id for event in ledger.events(unread) if event.event == "ended")
    names = dict.fromkeys(name for name in ended if name)
    folders = [workspace.trial(scenario, name) for name in names]
    return [folder.path for folder in folders if folder.sealed]


def collect(workspace: WorkspaceFolder, run_id: str) -> Collected:
    """Put a run's sealed trials into the tables; where its jobs go on without us, first see what became of them.

    A run that was pulled from elsewhere has no ledger here: its tables are what there is.
    """
    from benchhouse.warehouse.ingest import collect as ingest  # brings pyarrow

    if run_id not in list_runs(workspace):
        return Collected(run_id, 0, 0)
    under_way = turn(workspace, run_id) or 0
    unread: list[str] = []
    try:
        collected = ingest(workspace, run_id, trial_folders(workspace, run_id, unread))
    except OSError as error:
        message = f"the trials are sealed, but could not be collected: {unwritable(workspace.warehouse, error).message}"
        raise BenchError(message, f"make room, then: bench collect {run_id}", Exit.TRIAL_FAILED) from error
    return Collected(run_id, collected.trials, collected.rows, tuple(collected.skipped), under_way, len(unread))


def collect_missing(workspace: WorkspaceFolder, run_id: str) -> Collected:
    """Collect a run, unless the tables hold all of its sealed trials already."""
    from benchhouse.warehouse.queries import is_collected
    from benchhouse.warehouse.query import Warehouse

    if run_id not in list_runs(workspace):
        return Collected(run_id, 0, 0)
    under_way = turn(workspace, run_id) or 0
    folders = trial_folders(workspace, run_id)
    with Warehouse.open(workspace) as warehouse:
        if is_collected(warehouse, run_id, folders):
            return Collected(run_id, len(folders), 0, under_way=under_way)
    return collect(workspace, run_id)
