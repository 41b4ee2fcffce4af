"""Show a metric over all runs: where its level changed, by how much, and what else changed there."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show
from benchhouse.cli.examples import examples
from benchhouse.cli.shares import SHARE
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.history import CaseSummary, Watched

_ROWS = 9
_WIDEST = 100


@click.command(
    help=f"{__doc__}\n\nCASE is a scenario (where it has one point), scenario/point, or the id of a case; without "
    "it, the cases there are. Exit code 3 where new runs are worse than the accepted baseline."
    + examples(
        "bench history",
        "bench history first/name=short",
        "bench history first/name=short --metric cpu_ms --stat p90",
        "bench history --json",
    )
)
@click.argument("case", required=False)
@click.option("--metric", help="Which metric; by default the first that has a direction.")
@click.option("--stat", help="Which statistic of it: value, mean, p99, ...")
@click.option("--floor", type=SHARE, default="1%", show_default=True, help="Smaller changes are not reported.")
@options.json_option
@click.pass_context
def command(
    ctx: click.Context, case: str | None, metric: str | None, stat: str | None, floor: float, as_json: bool
) -> int:
    from benchhouse.api import history

    if case is None:
        return _list(history.cases(options.workspace(ctx)), as_json)
    watched = history.history(options.workspace(ctx), case, metric, stat, floor)
    if as_json:
        show.as_json(watched.as_dict())
    else:
        _show(watched)
    return Exit.REGRESSION if watched.alarm and watched.alarm.worse else Exit.GOOD


def _list(cases: "list[CaseSummary]", as_json: bool) -> int:
    if as_json:
        show.as_json([asdict(item) for item in cases])
        return Exit.GOOD
    rows = [(item.case, f"{item.experiment} {item.version}", item.runs) for item in cases]
    show.table(("case", "experiment", "runs"), rows, right=("runs",))
    show.note("next:  bench history CASE")
    return Exit.GOOD


def _show(watched: "Watched") -> None:
    from benchhouse.api.looking import number, percent, titled

    found = watched.history
    code = f"{found.case.experiment} {found.case.version}"
    click.echo(f"{found.case.label}  {titled(found.name, found.unit)}, {show.count(len(found.runs), 'run')}, {code}")
    places = {run.run_id: at for at, run in enumerate(found.runs)}
    _chart(found.values, [places[change.run_after] for change in found.changes])
    rows = [
        (change.run_before, change.run_after, number(change.before), number(change.after), percent(change.change),
         f"{percent(change.interval[0])} to {percent(change.interval[1])}" if change.interval else "",
         change.verdict)
        for change in found.changes
    ]  # fmt: skip
    if rows:
        columns = ("last run before", "first run after", "before", "after", "change", "95% interval", "verdict")
        show.table(columns, rows, right=("before", "after", "change"), whole=columns)
    else:
        click.echo("no change of level was found")
    for change in found.changes:
        for name, before, after in change.differs:
            show.note(f"differs at {change.run_after}: {name}: {before or 'unknown'} | {after or 'unknown'}")
        if not change.differs:
            show.note(f"at {change.run_after} nothing else that is recorded changed")
    for note in found.notes:
        show.note(note)
    if found.noise:
        memory = f", a run remembers {found.noise.memory:.0%} of the one before" if found.noise.memory else ""
        show.note(f"noise {percent(found.noise.spread, signed=False)} a run{memory}")
    _show_baseline(watched)
    if watched.note:
        show.note(watched.note)
    show.note(watched.selftest)
    if watched.baseline is None:
        show.note(options.next_for_baseline(watched))
    elif found.changes:
        show.note(f"look closer:  bench compare {found.changes[-1].run_before} {found.changes[-1].run_after}")


def _show_baseline(watched: "Watched") -> None:
    from benchhouse.api.looking import percent, quantity

    record, alarm = watched.baseline, watched.alarm
    if record is None:
        return
    told = f"baseline {quantity(record.level, record.unit)}, accepted {record.time[:10]} at {record.run_id}"
    if alarm is None:
        click.echo(f"{told}: {show.count(len(watched.later), 'later run')} fit it")
        return
    verdict = {True: "WORSE", False: "better", None: "different"}[alarm.worse]
    since, noticed = watched.later[alarm.since].run_id, watched.later[alarm.at].run_id
    click.echo(f"{told}: {verdict} by {percent(alarm.change)} since {since}, noticed at {noticed}")


def _chart(values: list[float], changes: list[int]) -> None:
    """Runs from left to right; `|` where a new level begins. Several runs share a column where there are many."""
    low, high = min(values), max(values)
    room = min(show.console().width, _WIDEST) - 12
    each = -(-len(values) // max(10, room))
    columns = [values[at : at + each] for at in range(0, len(values), each)]
    marks = {at // each for at in changes}
    span = (high - low) or 1.0
    for row in range(_ROWS, -1, -1):
        top = f"{high:.4g}" if row == _ROWS else f"{low:.4g}" if row == 0 else ""
        cells = []
        for at, column in enumerate(columns):
            here = any(round((value - low) / span * _ROWS) == row for value in column)
            cells.append("*" if here else "|" if at in marks else " ")
        click.echo(f"{top:>10}  {''.join(cells).rstrip()}".rstrip())
