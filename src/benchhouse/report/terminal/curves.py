"""Curves and services side by side, as `bench compare` prints them."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from benchhouse.report.terminal import screen
from benchhouse.results.numbers import number, quantity, spread_text, titled

if TYPE_CHECKING:
    from benchhouse.results.comparisons import SideBySide
    from benchhouse.results.curves import Scaling, Tradeoff
    from benchhouse.results.series import FlatPoint


def show_curves(curves: "Tradeoff | Scaling") -> None:
    """Print targets at equal quality, or along an axis."""
    from benchhouse.results.curves import Tradeoff

    show_tradeoff(curves) if isinstance(curves, Tradeoff) else show_scaling(curves)


def show_tradeoff(curves: "Tradeoff") -> None:
    click.echo(f"At {curves.x.name} {quantity(curves.level, curves.x.unit)}")
    value, interval = titled(curves.y.name, curves.y.unit), f"{curves.confidence * 100:g}% interval"
    against = "against best, interval"
    rows = [
        (f"{row.name} {row.mark}".strip(), row.value, row.interval, row.change, row.place, row.n,
         screen.verdict(row.verdict))
        for row in curves.rows()
    ]  # fmt: skip
    screen.table(
        ("target", value, interval, against, "at", "n", "verdict"),
        rows,
        right=(value, "n"),
        whole=(value, interval, "at", "n"),
        spare=("n", "at"),
    )
    for line in curves.sentences:
        _echo_wrapped(line)
    unbeaten = [curve.named(point) for curve in curves.curves for point in curve.points if point.frontier]
    screen.note(f"not beaten on both {curves.x.name} and {curves.y.name}: {', '.join(unbeaten)}")
    screen.note(f"interpolated: {curves.scales}")
    for note in curves.notes:
        screen.note(note)


def _echo_wrapped(sentence: str) -> None:
    """Print a sentence, wrapped at the width of the screen."""
    click.echo(textwrap.fill(sentence, screen.console().width, subsequent_indent="  "))


def show_scaling(scaling: "Scaling") -> None:
    from benchhouse.report.comparison_sections import curve_sentences, stage_heads, stage_rows

    if scaling.kind:
        click.echo(f"{scaling.title}\n")
    for at, curve in enumerate(scaling.curves):
        heads, rows = stage_heads(scaling, curve), stage_rows(scaling, curve)
        click.echo(f"{'' if not at else chr(10)}{curve.name}")
        # A narrow screen keeps the axis, the throughput, and its growth.
        spare = [head for head in heads[2:] if head not in ("× first", "speed-up", "efficiency")]
        screen.table(heads, rows, right=heads, whole=heads, spare=list(reversed(spare)))
        for sentence in curve_sentences(scaling, curve):
            _echo_wrapped(sentence)
    for note in scaling.notes:
        screen.note(note)


@dataclass(frozen=True)
class BesideTable:
    """One metric of one test: the targets in order."""

    case: str
    metric: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """The rows, with the verdict in the last cell."""


def incomparable_tables(beside: "SideBySide") -> "list[BesideTable]":
    from statistics import fmean, stdev

    tables, by_place = [], {member.at: member for member in beside.members}
    for case in beside.cases:
        for ranking in case.rankings:
            rows = []
            members = [by_place[standing.point] for standing in ranking.standings]
            names, where = _names(members), len({member.executor for member in members}) > 1
            for standing in ranking.standings:
                member = by_place[standing.point]
                values = member.samples[ranking.metric, ranking.stat].values
                mean, spread = fmean(values), stdev(values) if len(values) > 1 else None
                shown = number(mean, spread) + (f" ± {spread_text(mean, spread)}" if spread else "")
                change, interval = standing.gap_texts(ranking.unit)
                against = change + (f" ({interval})" if interval else "")
                name = f"{names[standing.point]} {standing.mark or ''}".strip()
                first = (str(standing.place), name, *([member.executor] if where else []))
                rows.append((*first, shown, against, str(len(values)), standing.verdict))
            value = titled(ranking.name, ranking.unit)
            columns = ("place", "target", *(["executor"] if where else []), value, "against best, interval", "n")
            tables.append(BesideTable(case.case, value, (*columns, "verdict"), rows))
    return tables


def show_incomparable(beside: "SideBySide") -> None:
    case = ""
    for table in incomparable_tables(beside):
        if table.case not in ("", case):
            click.echo(f"{table.case}\n")
        case = table.case
        screen.table(
            table.columns,
            [(*row[:-1], screen.verdict(row[-1])) for row in table.rows],
            right=("place", table.metric, "n"),
            whole=("place", "executor", table.metric, "n", "verdict"),
            spare=("n", "place"),
        )
        click.echo()
    if beside.alone:
        screen.note(f"{screen.count(beside.alone, 'point')} without another target put to the same test")
    for note in beside.notes:
        screen.note(note)


def _names(members: "Sequence[FlatPoint]") -> dict[int, str]:
    """Return the targets' names, extended as needed to distinguish the points: by their axes, their runs, or both."""
    short = {member.at: member.target_name for member in members}
    whole = {}
    for member in members:
        named = f"{member.label} ".startswith(f"{member.target_name} ")
        whole[member.at] = member.label if named else f"{member.target_name} {member.label}"
    runs = {member.at: f" ({member.run_id})" for member in members}
    ways = [short, whole, *({at: name + runs[at] for at, name in way.items()} for way in (short, whole))]
    return next((way for way in ways if len(set(way.values())) == len(way)), ways[-1])
