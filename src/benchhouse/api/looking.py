"""Look at results: query, points, compare, report, trace, verify. Everything reads the warehouse and the evidence."""

from pathlib import Path
from typing import Any

from benchhouse.analysis.summary import shaky_quantiles
from benchhouse.api import running
from benchhouse.evidence.verify import Damage, verify
from benchhouse.report.lineage import make_cells
from benchhouse.runs.ledger import Ledger
from benchhouse.schema.layout import TrialFolder, Workspace
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Result, Warehouse


def points(workspace: Workspace, run_ids: list[str]) -> list[dict[str, Any]]:
    """The points of runs with every metric: mean, spread, n, and the reference that `bench trace` takes."""
    with Warehouse.open(workspace) as warehouse:
        result = queries.points(warehouse, run_ids)
    rows = result.dicts()
    for row, cell in zip(rows, make_cells(result), strict=True):
        row["ref"] = cell.ref
        row["shaky"] = row["stat"] in shaky_quantiles(int(row["samples"] / row["n"])) if row["n"] else False
    return rows


def query(workspace: Workspace, sql: str) -> Result:
    with Warehouse.open(workspace) as warehouse:
        return warehouse.query(sql)


def verify_run(workspace: Workspace, run_id: str) -> tuple[int, list[Damage]]:
    """Re-hash every sealed folder of a run against its manifest, and each manifest against the ledger."""
    ledger = Ledger(workspace.run(run_id))
    scenario = ledger.record.scenario
    sealed: dict[str, str | None] = {}
    for event in ledger.events():
        if event.event == "ended" and event.trial_id and event.outcome != "lost":
            sealed[event.trial_id] = event.manifest
    damage: list[Damage] = []
    for name, manifest in sealed.items():
        damage += verify(workspace.trial(scenario, name), manifest)
    return len(sealed), damage


def verify_folder(path: Path) -> list[Damage]:
    return verify(TrialFolder(path))


def collected(workspace: Workspace, run_id: str) -> None:
    """Make sure the warehouse has all that is sealed of a run."""
    running.collect(workspace, run_id)
