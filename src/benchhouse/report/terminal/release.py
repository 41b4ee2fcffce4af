"""Two releases: one table per direction of change."""

import click

from benchhouse.report.release_page import TITLES
from benchhouse.report.terminal import screen
from benchhouse.results.release import GROUPS, TABLE_HEADS, ReleaseRow, ReleaseView, Unpaired, table_cells

_MOST_ALONE = 10


def show_release(view: ReleaseView) -> None:
    click.echo(f"FROM  {view.older}  ({view.by[0]})")
    click.echo(f"TO    {view.newer}  ({view.by[1]})")
    for group in GROUPS:
        if rows := view.group(group):
            click.echo(f"\n{TITLES[group]}")
            _table(rows)
    click.echo(f"\n{view.headline}")
    for release, alone in ((view.older, view.only_older), (view.newer, view.only_newer)):
        _note_alone(release, alone)
    for item in view.left_out:
        screen.note(f"left out: claim {item.claim}: {item.reason}")
    for line in view.notes:
        screen.note(line)
    if view.rows:
        screen.note(f"next:  bench claim verify {view.rows[0].newer.claim}")


def _table(rows: list[ReleaseRow]) -> None:
    """Print a table, without the verdict if the title states it."""
    kept = [at for at, head in enumerate(TABLE_HEADS) if head != "verdict" or rows[0].group == "stayed"]
    heads, cells = [TABLE_HEADS[at] for at in kept], [table_cells(row) for row in rows]
    shown = [[screen.verdict(row[at]) for at in kept] for row in cells]
    screen.table(heads, shown, right=("older", "newer"), whole=("change", "claims"), spare=("verdict", "version"))


def _note_alone(release: str, alone: list[Unpaired]) -> None:
    for item in alone[:_MOST_ALONE]:
        screen.note(f"only of {release}: {item.claim[:8]} {item.statement}")
    if (more := len(alone) - _MOST_ALONE) > 0:
        screen.note(f"and {more} more only of {release}: --json lists them")
