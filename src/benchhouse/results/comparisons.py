"""Comparisons of runs, of points of runs, and of targets: the input is selectors with full run ids, the output is
tables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchhouse.results import early_stopping
from benchhouse.results.comparison import DEFAULTS, CompareOptions, ComparisonTable
from benchhouse.results.comparison_sides import compare_selected, pick_sides
from benchhouse.results.content import CaseRanking
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.metric_names import declared_order, declared_roles
from benchhouse.results.rankings import leading_columns, side_by_side
from benchhouse.results.run_conditions import circumstances_of_sides
from benchhouse.results.scaling import declared_kind, make_scaling
from benchhouse.results.series import Column, FlatPoint, members_of_rows, without_number
from benchhouse.results.tradeoff import find_column, make_tradeoff, parse_level
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder, WorkspaceFolder
from benchhouse.schema.scenario import ScalingKind
from benchhouse.warehouse.query import Warehouse


@dataclass(frozen=True)
class Selected:
    """Points of any number of runs, in the order in which selectors picked them, and notes about them."""

    run_ids: list[str]
    members: list[FlatPoint]
    throughput: str | None
    latency: str | None
    notes: list[str]
    failed: list[FlatPoint]
    """Points that were tried and have no number."""
    scaling: ScalingKind | None
    """The kind of scaling that their scenarios declare."""

    def column(self, metric: str | None) -> Column:
        """Return the column of `metric`, or of the experiment's throughput. Raise BenchError if neither is known."""
        if metric or self.throughput:
            return find_column(self.members, metric or self.throughput or "")
        raise BenchError("the experiment does not say which metric is its throughput", hint="Name it: --of METRIC")


@dataclass(frozen=True)
class SideBySide:
    """Targets under identical load."""

    cases: list[CaseRanking]
    members: list[FlatPoint]
    alone: int
    """Number of points whose test only one target ran."""
    notes: list[str]


def compare(workspace: WorkspaceFolder, a: str, b: str, options: CompareOptions = DEFAULTS) -> ComparisonTable:
    """Compare B with A; each is a run, or points of a run: `RUN:key=value,...`."""
    with Warehouse.open(workspace) as warehouse:
        confidence = early_stopping.confidence_for(workspace, _runs_of([a, b]), options.confidence)
        table = compare_selected(warehouse, a, b, replace(options, confidence=confidence))
    return replace(table, notes=[*table.notes, *early_stopping.notes(confidence, options.confidence)])


def compare_at(
    workspace: WorkspaceFolder, selectors: Sequence[str], at: str, of: str | None, along: str, confidence: float
) -> tuple[Tradeoff, list[str]]:
    """Return each target's `of` at equal quality (`recall=0.95`), and the ids of the runs involved."""
    metric, level = parse_level(at)
    picked, confidence = _pick(workspace, selectors, confidence)
    x, y = find_column(picked.members, metric), picked.column(of)
    tried = [*picked.members, *picked.failed]
    tradeoff = make_tradeoff(tried, x, y, level, along=along, confidence=confidence)
    return tradeoff.model_copy(update={"notes": [*picked.notes, *tradeoff.notes]}), picked.run_ids


def compare_along(
    workspace: WorkspaceFolder, selectors: Sequence[str], along: str, of: str | None, confidence: float
) -> Scaling:
    """Return targets along an axis: throughput, latency, efficiency, and where scaling stops."""
    picked, confidence = _pick(workspace, selectors, confidence)
    scaling = make_scaling(
        picked.members,
        picked.column(of),
        picked.latency,
        along,
        confidence=confidence,
        failed=picked.failed,
        kind=picked.scaling,
    )
    return scaling.model_copy(update={"notes": [*picked.notes, *scaling.notes]})


def compare_target_rankings(
    workspace: WorkspaceFolder, selectors: Sequence[str], metrics: Sequence[str], confidence: float
) -> SideBySide:
    """Rank the targets under identical load, by `metrics`, or by throughput and latency if empty."""
    picked, confidence = _pick(workspace, selectors, confidence)
    columns = [find_column(picked.members, metric) for metric in metrics]
    columns = columns or leading_columns(picked.members, picked.throughput, picked.latency)
    cases = side_by_side(picked.members, columns, confidence)
    if not cases:
        raise BenchError(
            "nothing to compare side by side: no two targets ran the same test",
            hint="Name two runs, or points: bench compare @last:key=value @last:key=value",
        )
    placed = {standing.point for case in cases for ranking in case.rankings for standing in ranking.standings}
    alone = sum(member.at not in placed for member in picked.members)
    return SideBySide(cases, picked.members, alone, picked.notes)


def scenario_of(workspace: WorkspaceFolder, selector: str) -> str:
    """Return the name of the scenario of a run, or of points of a run; empty if the run is unknown."""
    (run_id,) = _runs_of([selector])
    with Warehouse.open(workspace) as warehouse:
        return next((run.scenario for run in warehouse.catalog.runs() if run.run_id == run_id), "")


def pick(warehouse: Warehouse, selectors: Sequence[str]) -> Selected:
    """Return the points that the selectors pick; a point that several pick counts once."""
    rows: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    notes: dict[str, None] = {}
    trials_of: dict[str, Sequence[Mapping[str, Any]]] = {}
    tried: list[Mapping[str, Any]] = []
    folders: list[TrialFolder] = []
    invalid: list[Mapping[str, Any]] = []
    for side, refused in pick_sides(warehouse, selectors, CompareOptions(every=True)):
        notes |= dict.fromkeys(refused)
        trials_of[side.rows[0]["run_id"]] = side.trials
        tried += side.tried
        folders.append(TrialFolder(warehouse.workspace.root / side.trials[0]["folder"]))
        rows |= {(row["run_id"], row["instance_digest"], row["metric"], row["stat"]): row for row in side.rows}
        invalid += side.refused
    facts = circumstances_of_sides(warehouse, list(trials_of.values()))
    for name in dict.fromkeys(name for of_run in facts for name in of_run):
        values = [of_run.get(name) or "unknown" for of_run in facts]
        if len(set(values)) > 1:
            notes[f"differs: {name}: {' | '.join(values)}"] = None
    roles, order = declared_roles(folders), declared_order(folders)
    ordered = sorted(rows.values(), key=lambda row: order.get(row["metric"], len(order)))
    members = members_of_rows(ordered, invalid)
    failed = without_number(tried, members)
    leading = roles.get("throughput"), roles.get("latency")
    return Selected(list(trials_of), members, *leading, list(notes), failed, declared_kind(folders))


def _pick(workspace: WorkspaceFolder, selectors: Sequence[str], confidence: float) -> tuple[Selected, float]:
    """Return the picked points with the confidence for intervals that actually cover the requested one."""
    with Warehouse.open(workspace) as warehouse:
        picked = pick(warehouse, selectors)
    return picked, early_stopping.confidence_for(workspace, _runs_of(selectors), confidence)


def _runs_of(selectors: Sequence[str]) -> list[str]:
    return [selector.partition(":")[0] for selector in selectors]
