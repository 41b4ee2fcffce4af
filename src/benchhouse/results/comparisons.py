"""Comparisons of runs, of points of runs, and of targets: selectors with full run ids go in, tables come out."""

from collections.abc import Sequence
from dataclasses import replace

from benchhouse.results import stopped
from benchhouse.results.comparison import CompareOptions, ComparisonTable, compare_selected
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.selected import SideBySide, along_axis, at_level, beside
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.query import Warehouse


def compare(workspace: WorkspaceFolder, a: str, b: str, options: CompareOptions = CompareOptions()) -> ComparisonTable:  # noqa: B008 - frozen
    """B against A; each is a run, or points of a run: `RUN:key=value,...`."""
    with Warehouse.open(workspace) as warehouse:
        confidence = stopped.confidence_for(workspace, _runs_of([a, b]), options.confidence)
        table = compare_selected(warehouse, a, b, replace(options, confidence=confidence))
    return replace(table, notes=[*table.notes, *stopped.told(confidence, options.confidence)])


def compare_at(
    workspace: WorkspaceFolder, selectors: Sequence[str], at: str, of: str | None, along: str, confidence: float
) -> tuple[Tradeoff, list[str]]:
    """Targets at equal quality (`recall=0.95`), and the runs that they are from."""
    with Warehouse.open(workspace) as warehouse:
        made = stopped.confidence_for(workspace, _runs_of(selectors), confidence)
        return at_level(warehouse, list(selectors), at, of, along, made)


def compare_along(
    workspace: WorkspaceFolder, selectors: Sequence[str], along: str, of: str | None, confidence: float
) -> Scaling:
    """Targets along an axis: throughput, latency, efficiency, and where scaling stops."""
    with Warehouse.open(workspace) as warehouse:
        made = stopped.confidence_for(workspace, _runs_of(selectors), confidence)
        return along_axis(warehouse, list(selectors), along, of, made)


def compare_beside(
    workspace: WorkspaceFolder, selectors: Sequence[str], metrics: Sequence[str], confidence: float
) -> SideBySide:
    """Targets side by side under identical load."""
    with Warehouse.open(workspace) as warehouse:
        made = stopped.confidence_for(workspace, _runs_of(selectors), confidence)
        return beside(warehouse, list(selectors), list(metrics), made)


def scenario_of(workspace: WorkspaceFolder, selector: str) -> str:
    """The name of the scenario that a run, or points of a run, are of."""
    (run_id,) = _runs_of([selector])
    with Warehouse.open(workspace) as warehouse:
        return next((run.scenario for run in warehouse.runs() if run.run_id == run_id), "")


def _runs_of(selectors: Sequence[str]) -> list[str]:
    return [selector.partition(":")[0] for selector in selectors]
