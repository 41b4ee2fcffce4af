"""The sides of a comparison, read from the tables: the points that selectors pick, all read at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from benchhouse.results import noise_persistence
from benchhouse.results.comparison import DEFAULTS, CompareOptions, ComparisonSide, ComparisonTable, compare_runs
from benchhouse.results.invalid_trials import caveats
from benchhouse.results.metric_names import columns_of, declared_order
from benchhouse.results.numbers import name_of
from benchhouse.results.run_conditions import circumstances_of_sides
from benchhouse.results.selection import Selector, parse_selector, select
from benchhouse.schema.errors import BenchError
from benchhouse.schema.layout import TrialFolder
from benchhouse.schema.quoting import shortened
from benchhouse.warehouse import queries
from benchhouse.warehouse.grouping import grouped
from benchhouse.warehouse.query import Result, Warehouse

Row = Mapping[str, Any]
_LISTED = 8


def compare_selected(warehouse: Warehouse, a: str, b: str, options: CompareOptions = DEFAULTS) -> ComparisonTable:
    """Compare what two selectors pick; a run may be anything that the warehouse resolves (`@last`, a prefix)."""
    picked = pick_sides(warehouse, (a, b), options)
    facts = circumstances_of_sides(warehouse, [side.trials for side, _ in picked])
    side_a, side_b = (replace(side, facts=known) for (side, _), known in zip(picked, facts, strict=True))
    witnesses = [next((row for row in side.trials if row["outcome"] == "succeeded"), None) for side, _ in picked]
    folders = [TrialFolder(warehouse.workspace.root / row["folder"]) for row in witnesses if row]
    earlier = partial(noise_persistence.earlier_rows, warehouse, [*side_a.rows, *side_b.rows])
    table = compare_runs(side_a, side_b, options, declared_order(folders), earlier)
    notes = dict.fromkeys(note for _, refused in picked for note in refused)
    return replace(table, notes=[*notes, *table.notes])


def pick_sides(
    warehouse: Warehouse, selectors: Sequence[str], options: CompareOptions
) -> list[tuple[ComparisonSide, list[str]]]:
    """Return the points of each selector, without its circumstances, and the notes about trials that are left out.

    The queries cost the same for two runs as for one.
    """
    parsed = [parse_selector(text) for text in selectors]
    picked = [Selector(warehouse.require_run(item.run), item.filters) for item in parsed]
    runs = list(dict.fromkeys(selector.run for selector in picked))
    columns = None if options.every and not options.metrics else columns_of(warehouse, runs, options.metrics)
    trials = _by_run(queries.trials(warehouse, runs))
    points = _by_run(queries.points(warehouse, runs, columns))
    figures = _by_run(queries.refused_figures(warehouse, runs))
    sides = []
    for selector in picked:
        tried = select([row for row in trials.get(selector.run, []) if not row["warmup"]], selector)
        rows = _of(tried, points.get(selector.run, []))
        if not rows and columns is not None:  # it has none of these metrics: the message will list those it has
            rows = _of(tried, queries.points(warehouse, [selector.run]).dicts())
        invalid = _of(tried, figures.get(selector.run, []))
        sides.append(_side(selector, trials.get(selector.run, []), tried, rows, invalid))
    return sides


def _by_run(result: Result) -> dict[str, list[dict[str, Any]]]:
    return grouped(result.dicts(), itemgetter("run_id"))


def _of(trials: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return the rows that belong to points of these trials."""
    chosen = {row["instance_digest"] for row in trials}
    return [row for row in rows if row["instance_digest"] in chosen]


def _side(
    selector: Selector, every_trial: Sequence[Row], tried: list[Row], rows: list[Row], invalid: list[Row]
) -> tuple[ComparisonSide, list[str]]:
    refused = caveats(str(selector), tried)
    if not rows and invalid:
        names = shortened(list(dict.fromkeys(name_of(row["metric"], row["stat"]) for row in invalid)), _LISTED)
        raise BenchError(f"{selector} has nothing to compare: INVALID in every trial: {names}", hint="\n".join(refused))
    if not rows:
        why = "\n".join([*refused, f"See more: bench status {selector.run}, bench report {selector.run}"])
        raise BenchError(f"{selector} has no successful trial to compare", hint=why)
    used = {trial for row in rows for trial in row["trials"]}
    trials = [row for row in every_trial if row["trial_id"] in used]
    return ComparisonSide(
        str(selector), rows, tuple(selector.filters), trials=trials, refused=invalid, tried=tried
    ), refused
