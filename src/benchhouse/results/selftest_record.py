"""The last selftest: how reliable verdicts on this machine are."""

from benchhouse.evidence import journals
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quality import SelftestRecord


def last(workspace: WorkspaceFolder, scenario: str = "") -> SelftestRecord | None:
    """Return the newest selftest of this workload, otherwise the newest of any; None if there is none."""
    records = journals.read(workspace.selftest_journal, SelftestRecord)[0]
    own = [record for record in records if record.scenario == scenario]
    return (own or records)[-1] if records else None


def sentence(workspace: WorkspaceFolder, scenario: str = "") -> str:
    """Return one line to show below a verdict."""
    record = last(workspace, scenario)
    if record is None:
        return "no selftest here yet: how often equal things look different on this machine is unknown (bench selftest)"
    other = "" if not scenario or record.scenario == scenario else f" (another workload: {record.scenario})"
    return record.sentence() + other
