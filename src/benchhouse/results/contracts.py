"""The value of a run under its contract."""

from typing import TYPE_CHECKING

from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse

if TYPE_CHECKING:
    from benchhouse.warehouse.contract_rows import RunContract


def contract_of(workspace: WorkspaceFolder, run_id: str) -> "RunContract | None":
    """Return the result of the run's contract from the rows of its trials; None if it has none, or nothing was
    collected.
    """
    with Warehouse.open(workspace) as warehouse:
        rows = queries.trials(warehouse, [run_id]).dicts()
    if not any(row.get("contract") for row in rows):
        return None
    from benchhouse.warehouse.contract_rows import run_contract  # imports the models of contracts

    return run_contract(rows)
