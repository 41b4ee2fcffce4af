"""Runs that a cluster carries as a whole: handed over once, looked at and ended through the cluster."""

import sys

from benchhouse.catalog.entries import plug
from benchhouse.evidence.writing import write_text
from benchhouse.runs.ledger import Ledger
from benchhouse.runs.preparation import Prepared
from benchhouse.runs.records import resume_run
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.protocols import Assignment, Carrier
from benchhouse.sites import places


def carrier(prepared: Prepared, ledger: Ledger) -> Carrier | None:
    """Who takes whole runs at the place where this scenario goes; None where a process here carries them."""
    scenario = prepared.plan.scenario
    assignment = Assignment(scenario.parallel, scenario, prepared.site, ledger.folder)
    executor = plug("executors", scenario.executor)(assignment)
    found: Carrier | None = getattr(executor, "carrier", None)
    return found


def carry(workspace: WorkspaceFolder, ledger: Ledger, by: Carrier) -> str:
    """Have the run carried on there; returns the id of its job. Its nodes must see this workspace and this Python."""
    run_id = ledger.folder.run_id
    root = str(workspace.root.absolute())
    command = [sys.executable, "-m", "benchhouse", "-C", root, "run", "--resume", run_id]
    if site := ledger.record.site:
        command += ["--site", site]
    earlier = sum(event.event == "submitted" for event in ledger.events())
    job = by.carry(f"bench-{run_id}-{earlier + 1}", command)
    write_text(ledger.folder.carried, job)
    ledger.tell("submitted", reason=f"job {job}")
    return job


def under_way(workspace: WorkspaceFolder, ledger: Ledger) -> tuple[Carrier, str] | None:
    """The carrier and the job of a run that was handed over and is not known to have ended."""
    if not ledger.folder.carried.is_file():
        return None
    record = ledger.record
    site = places.site(workspace, record.site)
    prepared = resume_run(workspace, record.run_id)[1]
    assignment = Assignment(scenario=prepared.plan.scenario, site=site, run=ledger.folder)
    by: Carrier | None = getattr(plug("executors", record.executor)(assignment), "carrier", None)
    job = ledger.folder.carried.read_text(encoding="utf-8").strip()
    return (by, job) if by and by.goes_on(job) else None
