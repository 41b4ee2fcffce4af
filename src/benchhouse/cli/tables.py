"""The tables of results that several verbs print."""

from typing import Any

import click

from benchhouse.api import looking
from benchhouse.cli import show

Column = tuple[str, str, str]
Key = tuple[str, str]
_MOST_POINTS, _FEWEST_POINTS = 40, 5
_OTHER_LINES = 14  # of the screen: heads, spread, notes and what the run itself has to say
_MOST_AXES = 4
SHAKY = "~ a percentile from too few samples within a trial to be trusted"


def points_table(points: list[dict[str, Any]], tried: list[dict[str, Any]] | None = None) -> None:
    """One row a point, one column a metric (mean over trials ± spread), the experiment's own order of metrics.

    As many metrics as the screen has room for. `tried` names points without a number too, and how many trials failed.
    """
    columns: dict[Column, str] = {}
    cells: dict[tuple[str, str], dict[Column, dict[str, Any]]] = {_key(row): {} for row in tried or points}
    for row in points:
        column = row["metric"], row["stat"], row["unit"]
        cells.setdefault(_key(row), {})[column] = row
        if row["headline"]:
            columns.setdefault(column, looking.titled(_name(row), row["unit"]))
    if not cells:
        return
    labels = {_key(row): row["point"] or row["target_name"] or row["scenario"] for row in [*points, *(tried or [])]}
    counts = _counts(cells, tried)
    total, room = len(cells), _room()
    if total > room:
        leader = _leader(points, columns)
        cells = {key: cells[key] for key in _best(cells, leader)[:room]}
    rows = [
        (labels[key], counts[key], *(_cell(found.get(column)) for column in columns)) for key, found in cells.items()
    ]
    n = "ok/all" if any("/" in count for count in counts.values()) else "n"
    names = list(columns.values())
    dropped = show.table(["point", n, *names], rows, right=[n, *names], whole=[n, *names], spare=names[1:])
    shown = [column for column, name in columns.items() if name not in dropped]
    if any(found[column]["shaky"] for found in cells.values() for column in shown if column in found):
        show.note(SHAKY)
    if dropped:
        show.note(f"{show.count(len(dropped), 'more metric')}: bench report, or --json")
    if total > room:
        _show_spread(points, leader)
        show.note(f"{total - len(cells):,} more: bench report")


def _room() -> int:
    """Points that are shown: as many as leave the end of a run on one screen."""
    return max(_FEWEST_POINTS, min(_MOST_POINTS, show.screen_lines() - _OTHER_LINES))


def _leader(points: list[dict[str, Any]], columns: dict[Column, str]) -> Column | None:
    """What points are put in order by: the first metric that says which way is better, else the first."""
    directed = {(row["metric"], row["stat"], row["unit"]) for row in points if row["direction"]}
    return next((column for column in columns if column in directed), next(iter(columns), None))


def _best(cells: dict[Key, dict[Column, dict[str, Any]]], leader: Column | None) -> list[Key]:
    """All points, the best first; as they come where no metric says which way is better, and without a number last."""

    def place(key: Key) -> tuple[bool, float]:
        row = cells[key].get(leader) if leader else None
        if row is None:
            return True, 0.0
        return False, row["mean"] * {"higher": -1.0, "lower": 1.0}.get(row["direction"], 0.0)

    return sorted(cells, key=place)


def _show_spread(points: list[dict[str, Any]], leader: Column | None) -> None:
    """One line for all points, and one for each of the axes that move them most."""
    rows = [row for row in points if (row["metric"], row["stat"], row["unit"]) == leader]
    if not rows:
        return
    click.echo()
    for line in looking.spread_lines(rows, _MOST_AXES):
        click.echo(line)


def _key(row: dict[str, Any]) -> tuple[str, str]:
    """Labels may be the same; an instance of a run is itself."""
    return row["run_id"], row["instance_digest"]


def _counts(
    cells: dict[tuple[str, str], dict[Column, dict[str, Any]]], tried: list[dict[str, Any]] | None
) -> dict[tuple[str, str], str]:
    """Trials behind each row; `2/3` everywhere as soon as one failed somewhere."""
    if tried and any(row["succeeded"] < row["trials"] for row in tried):
        return {_key(row): f"{row['succeeded']}/{row['trials']}" for row in tried}
    return {key: str(max((row["n"] for row in found.values()), default=0)) for key, found in cells.items()}


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    spread = looking.spread_text(row["mean"], row["stdev"])
    return (
        ("~" if row["shaky"] else "") + looking.number(row["mean"], row["stdev"]) + (f" ± {spread}" if spread else "")
    )


def _name(row: dict[str, Any]) -> str:
    name: str = row["metric"]
    return name if row["stat"] == "value" else f"{name} {row['stat']}"
