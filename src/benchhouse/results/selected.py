"""Points of any number of runs, as selectors pick them: at equal quality, along an axis, or side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchhouse.results.circumstances import circumstances_of_sides
from benchhouse.results.comparison import Selector, caveats, parse_selector, select
from benchhouse.results.content import CaseRanking
from benchhouse.results.curves import Scaling, Tradeoff
from benchhouse.results.order import declared_order, declared_roles
from benchhouse.results.scaling import make_scaling
from benchhouse.results.series import Column, Member, members_of_rows
from benchhouse.results.standings import leading_columns, side_by_side
from benchhouse.results.tradeoff import find_column, make_tradeoff, parse_level
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder
from benchhouse.warehouse import queries
from benchhouse.warehouse.query import Warehouse


@dataclass(frozen=True)
class Selected:
    """Points, in the order in which they were picked, and what must be said about them."""

    run_ids: list[str]
    members: list[Member]
    throughput: str | None
    latency: str | None
    notes: list[str]

    def column(self, metric: str | None) -> Column:
        """The metric named, or the experiment's throughput."""
        if metric or self.throughput:
            return find_column(self.members, metric or self.throughput or "")
        raise BenchError("the experiment does not say which metric is its throughput", hint="Name it: --of METRIC")


def pick(warehouse: Warehouse, selectors: Sequence[str]) -> Selected:
    """What the selectors pick of their runs; a point that several pick counts once."""
    rows: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    notes: dict[str, None] = {}
    trials_of: dict[str, Sequence[Mapping[str, Any]]] = {}
    folders: list[TrialFolder] = []
    for text in selectors:
        picked = parse_selector(text)
        selector = Selector(warehouse.require_run(picked.run), picked.filters)
        every_trial = queries.trials(warehouse, [selector.run]).dicts()
        tried = select([row for row in every_trial if not row["warmup"]], selector)
        chosen = {row["instance_digest"] for row in tried}
        found = [row for row in queries.points(warehouse, [selector.run]).dicts() if row["instance_digest"] in chosen]
        refused = caveats(str(selector), tried)
        if not found:
            why = "\n".join([*refused, f"See more: bench status {selector.run}, bench report {selector.run}"])
            raise BenchError(f"{selector} has no successful trial to compare", hint=why)
        notes |= dict.fromkeys(refused)
        used = {trial for row in found for trial in row["trials"]}
        trials = [row for row in every_trial if row["trial_id"] in used]
        trials_of[selector.run] = trials
        folders += [TrialFolder(warehouse.workspace.root / trials[0]["folder"])]
        rows |= {(row["run_id"], row["instance_digest"], row["metric"], row["stat"]): row for row in found}
    sides = circumstances_of_sides(warehouse.workspace.root, list(trials_of.values()))
    facts = dict(zip(trials_of, sides, strict=True))
    roles, order = declared_roles(folders), declared_order(folders)
    told = sorted(rows.values(), key=lambda row: order.get(row["metric"], len(order)))
    return Selected(
        list(facts), members_of_rows(told), roles.get("throughput"), roles.get("latency"), [*notes, *_differ(facts)]
    )


def _differ(facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Circumstances that are not the same in all runs."""
    names = dict.fromkeys(name for of_run in facts.values() for name in of_run)
    lines = []
    for name in names:
        values = [of_run.get(name) or "unknown" for of_run in facts.values()]
        if len(set(values)) > 1:
            lines.append(f"differs: {name}: {' | '.join(values)}")
    return lines


def at_level(
    warehouse: Warehouse, selectors: Sequence[str], at: str, of: str | None, along: str, confidence: float
) -> tuple[Tradeoff, list[str]]:
    """Each target's `of` where it has `at` (METRIC=VALUE), and the runs."""
    metric, level = parse_level(at)
    picked = pick(warehouse, selectors)
    x, y = find_column(picked.members, metric), picked.column(of)
    made = make_tradeoff(picked.members, x, y, level, along=along, confidence=confidence)
    return made.model_copy(update={"notes": [*picked.notes, *made.notes]}), picked.run_ids


def along_axis(
    warehouse: Warehouse, selectors: Sequence[str], along: str, of: str | None, confidence: float
) -> Scaling:
    """Each target's throughput and latency along a number."""
    picked = pick(warehouse, selectors)
    made = make_scaling(picked.members, picked.column(of), picked.latency, along, confidence=confidence)
    return made.model_copy(update={"notes": [*picked.notes, *made.notes]})


@dataclass(frozen=True)
class SideBySide:
    """Targets under identical load."""

    cases: list[CaseRanking]
    members: list[Member]
    alone: int
    """Tests that only one target was put to."""
    notes: list[str]


def beside(warehouse: Warehouse, selectors: Sequence[str], metrics: Sequence[str], confidence: float) -> SideBySide:
    """Rankings of the targets of each test, by the metrics named, or else by throughput and latency."""
    picked = pick(warehouse, selectors)
    columns = [find_column(picked.members, metric) for metric in metrics]
    columns = columns or leading_columns(picked.members, picked.throughput, picked.latency)
    cases = side_by_side(picked.members, columns, confidence)
    if not cases:
        raise BenchError(
            "nothing stands side by side: no two targets were put to the same test",
            hint="Name two runs, or points: bench compare @last:key=value @last:key=value",
        )
    placed = {standing.point for case in cases for ranking in case.rankings for standing in ranking.standings}
    return SideBySide(cases, picked.members, sum(one.at not in placed for one in picked.members), picked.notes)
