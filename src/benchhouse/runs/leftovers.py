"""What killed orchestrators left in the results folder."""

from functools import cache
from pathlib import Path

from benchhouse.evidence.folder import read_spec
from benchhouse.runs.ledger import Ledger, list_runs
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder


def leftovers(workspace: WorkspaceFolder, scenario: str, run_id: str) -> list[Path]:
    """Unfinished folders of this run, whose orchestrator was killed, and of other runs that nobody works on."""
    folder = workspace.results / scenario / ".partial"

    @cache
    def abandoned(other: str) -> bool:
        ledger = Ledger(workspace.run(other))
        return other == run_id or (ledger.owner() is None and not ledger.goes_on())

    def is_left(path: Path) -> bool:
        try:
            return abandoned(read_spec(TrialFolder(path)).run_id)
        except (OSError, ValueError):  # killed while it was made, or being made by another run
            return all(abandoned(other) for other in list_runs(workspace))

    return [path for path in sorted(folder.iterdir()) if is_left(path)] if folder.is_dir() else []
