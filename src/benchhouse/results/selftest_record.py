"""What the last selftest says about verdicts on this machine."""

from benchhouse.evidence import journals
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.schema.quality import SelftestRecord


def last(workspace: WorkspaceFolder, scenario: str = "") -> SelftestRecord | None:
    """The newest selftest of this workload, else the newest of any."""
    records = journals.read(workspace.selftest_journal, SelftestRecord)[0]
    own = [record for record in records if record.scenario == scenario]
    return (own or records)[-1] if records else None


def sentence(workspace: WorkspaceFolder, scenario: str = "") -> str:
    """One line for the foot of a verdict."""
    record = last(workspace, scenario)
    if record is None:
        return "no selftest here yet: how often equal things look different on this machine is unknown (bench selftest)"
    other = "" if not scenario or record.scenario == scenario else f" (another workload: {record.scenario})"
    return record.sentence() + other
