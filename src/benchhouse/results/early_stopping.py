"""Runs whose repetitions were ended by a rule: their intervals are widened, so that they have the stated coverage."""

from collections.abc import Iterable

from benchhouse.analysis.stopping import widened
from benchhouse.documents.yaml_reader import parse_yaml
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import WorkspaceFolder


def confidence_for(workspace: WorkspaceFolder, run_ids: Iterable[str], confidence: float = 0.95) -> float:
    """Return the confidence for intervals of these runs, so that they actually cover `confidence`."""
    return widened(confidence) if any(stopped_early(workspace, run_id) for run_id in run_ids) else confidence


def notes(made: float, confidence: float = 0.95) -> list[str]:
    """Return notes for the reader; empty if no rule ended repetitions."""
    if made == confidence:
        return []
    return [f"Repetitions ended by a rule: intervals are made at {made:.4g}, so that they cover {confidence:.4g}."]


def stopped_early(workspace: WorkspaceFolder, run_id: str) -> bool:
    """Whether a rule ended the repetitions of a run, according to its ledger; False if the ledger is missing."""
    try:
        text = workspace.run(run_id).scenario.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if "until" not in text:
        return False
    try:
        document = parse_yaml(text, run_id)
    except BenchError:
        return False
    return isinstance(document.value(("repetitions",)), dict)
