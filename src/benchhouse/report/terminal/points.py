"""The table of points that several verbs print."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from benchhouse.report.terminal import screen
from benchhouse.results.numbers import INVALID, name_of, number, off_text, quantity, spread_text, titled
from benchhouse.results.run_points import spread_lines

if TYPE_CHECKING:
    from benchhouse.results.run_points import PointValue, TriedPoint

Column = tuple[str, str, str]
Key = tuple[str, str]
_MOST_POINTS, _FEWEST_POINTS = 40, 5
_OTHER_LINES = 14  # of the screen: heads, spread, notes, and the output of the run itself
_MOST_AXES = 4
SHAKY = "~ a percentile from too few samples within a trial to be trusted"


@dataclass(frozen=True)
class PointGrid:
    """Points as rows, metrics as columns: the headline statistic of each, in the experiment's own order."""

    columns: dict[Column, str]  # the columns that are shown, with their titles
    cells: "dict[Key, dict[Column, PointValue]]"
    labels: dict[Key, str]
    refused: set[tuple[Key, Column]]  # INVALID in every trial
    counts: dict[Key, str]  # trials behind each row; written as `2/3` everywhere if any failed

    @property
    def count_title(self) -> str:
        return "ok/all" if any("/" in count for count in self.counts.values()) else "n"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows: label, count, then the mean over trials ± spread per column."""
        return [
            (self.labels[key], self.counts[key], *(self._cell(key, column) for column in self.columns))
            for key in self.cells
        ]

    def bounds(self, columns: "Sequence[Column]") -> list[str]:
        """Return the largest error bound of each column whose values can be off noticeably."""
        points = [(column, row[column]) for column in columns for row in self.cells.values() if column in row]
        off = [(column, point) for column, point in points if off_text(point.mean, point.error_bound)]
        most = {column: max(point.error_bound or 0.0 for other, point in off if other == column) for column, _ in off}
        return [f"{name_of(*column[:2])} by {quantity(bound, column[2])}" for column, bound in most.items()]

    def _cell(self, key: Key, column: Column) -> str:
        return INVALID if (key, column) in self.refused else _cell(self.cells[key].get(column))


def grid(points: "Sequence[PointValue]", tried: "Sequence[TriedPoint]" = ()) -> PointGrid:
    """Return the grid; `tried` adds points without a number, and how many trials failed."""
    columns: dict[Column, str] = {}
    cells: dict[Key, dict[Column, PointValue]] = {_key(point): {} for point in tried or points}
    for point in points:
        column = point.metric, point.stat, point.unit
        cells.setdefault(_key(point), {})[column] = point
        if point.headline:
            columns.setdefault(column, titled(name_of(point.metric, point.stat), point.unit))
    refused = {(_key(point), column) for point in tried for column in point.refused}
    for metric, stat, unit in (column for point in tried for column in point.refused):
        if stat in ("value", "mean"):
            columns.setdefault((metric, stat, unit), titled(name_of(metric, stat), unit))
    labels = {_key(point): point.label for point in points} | {_key(point): point.label for point in tried}
    if any(point.succeeded < point.trials for point in tried):
        counts = {_key(point): f"{point.succeeded}/{point.trials}" for point in tried}
    else:
        counts = {key: str(max((point.n for point in row.values()), default=0)) for key, row in cells.items()}
    return PointGrid(columns, cells, labels, refused, counts)


def points_table(points: "Sequence[PointValue]", tried: "Sequence[TriedPoint]" = ()) -> None:
    """Print one row per point and one column per metric, as many metrics as fit the screen."""
    table = grid(points, tried)
    if not table.cells:
        return
    total = len(table.cells)
    # The number of points that leaves the end of a run on one screen.
    room = max(_FEWEST_POINTS, min(_MOST_POINTS, screen.screen_lines() - _OTHER_LINES))
    if total > room:
        # In the order of the first metric with a direction, or else of the first metric.
        directed = {(point.metric, point.stat, point.unit) for point in points if point.direction}
        leader = next((column for column in table.columns if column in directed), next(iter(table.columns), None))
        table = replace(table, cells={key: table.cells[key] for key in _best(table.cells, leader)[:room]})
    n, names = table.count_title, list(table.columns.values())
    dropped = screen.table(["point", n, *names], table.rows(), right=[n, *names], whole=[n, *names], spare=names[1:])
    shown = [column for column, name in table.columns.items() if name not in dropped]
    if any(row[column].shaky for row in table.cells.values() for column in shown if column in row):
        screen.note(SHAKY)
    if bounds := table.bounds(shown):
        screen.note(f"can be off: {', '.join(bounds)} at most")
    if any((key, column) in table.refused for key in table.cells for column in shown):
        screen.note(f"{INVALID}: can be off by more than is taken in every trial; the warnings say why")
    if dropped:
        screen.note(f"{screen.count(len(dropped), 'more metric')}: bench report, or --json")
    if total > room:
        _show_spread(points, leader)
        screen.note(f"{total - len(table.cells):,} more: bench report")


def _best(cells: "dict[Key, dict[Column, PointValue]]", leader: Column | None) -> list[Key]:
    """Return all points, the best first and those without a number last; in their own order if no metric has a
    direction."""

    def place(key: Key) -> tuple[bool, float]:
        point = cells[key].get(leader) if leader else None
        if point is None:
            return True, 0.0
        return False, point.mean * {"higher": -1.0, "lower": 1.0}.get(point.direction or "", 0.0)

    return sorted(cells, key=place)


def _show_spread(points: "Sequence[PointValue]", leader: Column | None) -> None:
    """Print one line for all points, and one for each of the axes with the largest effect."""
    same = [point for point in points if (point.metric, point.stat, point.unit) == leader]
    for line in ["", *spread_lines(same, _MOST_AXES)] if same else ():
        click.echo(line)


def _key(point: "PointValue | TriedPoint") -> Key:
    """Return the identity of a point in its run, because labels may be equal."""
    return point.run_id, point.instance_digest


def _cell(point: "PointValue | None") -> str:
    if point is None:
        return ""
    spread = spread_text(point.mean, point.stdev)
    return ("~" if point.shaky else "") + number(point.mean, point.stdev) + (f" ± {spread}" if spread else "")
