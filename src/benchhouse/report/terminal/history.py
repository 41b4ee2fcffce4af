"""One metric over all runs: a chart, its changes of level, and its state relative to the baseline."""

import shlex
from typing import TYPE_CHECKING

import click

from benchhouse.report.terminal import screen
from benchhouse.results.numbers import number, percent, quantity, titled

if TYPE_CHECKING:
    from benchhouse.results.history import Watched

_ROWS = 9
_WIDEST = 100


def show_history(watched: "Watched") -> None:
    """Print the values of all runs, the changes of their level, and the baseline."""
    past = watched.history
    code = f"{past.case.experiment} {past.case.version}"
    click.echo(f"{past.case.label}  {titled(past.name, past.unit)}, {screen.count(len(past.runs), 'run')}, {code}")
    places = {run.run_id: at for at, run in enumerate(past.runs)}
    _chart(past.values, [places[change.run_after] for change in past.changes])
    rows = [
        (change.run_before, change.run_after, number(change.before), number(change.after), percent(change.change),
         f"{percent(change.interval[0])} to {percent(change.interval[1])}" if change.interval else "",
         change.verdict)
        for change in past.changes
    ]  # fmt: skip
    if rows:
        columns = ("last run before", "first run after", "before", "after", "change", "95% interval", "verdict")
        screen.table(columns, rows, right=("before", "after", "change"), whole=columns)
    elif not past.drifts:
        click.echo("no change of level was found")
    for drift in past.drifts:
        click.echo(drift.sentence)
    for change in past.changes:
        for name, before, after in change.differs:
            screen.note(f"differs at {change.run_after}: {name}: {before or 'unknown'} | {after or 'unknown'}")
        if not change.differs:
            screen.note(f"at {change.run_after} nothing else that is recorded changed")
    for note in past.notes:
        screen.note(note)
    if past.noise:
        memory = f", a run remembers {past.noise.memory:.0%} of the one before" if past.noise.memory else ""
        screen.note(f"noise {percent(past.noise.spread, signed=False)} a run{memory}")
    _show_baseline(watched)
    if watched.note:
        screen.note(watched.note)
    screen.note(watched.selftest)
    if watched.baseline is None:
        screen.note(next_for_baseline(watched))
    elif past.changes:
        screen.note(f"look closer:  bench compare {past.changes[-1].run_before} {past.changes[-1].run_after}")


def _show_baseline(watched: "Watched") -> None:
    record, alarm = watched.baseline, watched.alarm
    if record is None:
        return
    baseline = f"baseline {quantity(record.level, record.unit)}, accepted {record.time[:10]} at {record.run_id}"
    if alarm is None:
        click.echo(f"{baseline}: {screen.count(len(watched.later), 'later run')}, the level of now fits it")
        return
    verdict = {True: "WORSE", False: "better", None: "different"}[alarm.worse]
    since, noticed = watched.later[alarm.since].run_id, watched.later[alarm.at].run_id
    click.echo(f"{baseline}: {verdict} by {percent(alarm.change)} since {since}, noticed at {noticed}")


def _chart(values: list[float], changes: list[int]) -> None:
    """Print runs from left to right; `|` marks a new level. Several runs share a column if there are many."""
    low, high = min(values), max(values)
    room = min(screen.console().width, _WIDEST) - 12
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


def history_arguments(case: str, metric: str, stat: str) -> str:
    """Return the arguments of `bench history` and `bench baseline` for one metric of a case."""
    chosen = "" if stat in ("value", "mean") else f" --stat {stat}"  # these are the default
    return f"{shlex.quote(case)} --metric {metric}{chosen}"


def next_for_baseline(watched: "Watched") -> str:
    """Return the next step without an accepted baseline: accept the level, or get the runs that are missing to know
    it."""
    past = watched.history
    if watched.can_be_accepted:
        name = history_arguments(past.case.label, past.metric, past.stat)
        return f"accept this level as the baseline:  bench baseline accept {name}"
    missing = watched.runs_missing
    if missing:
        needed = f"a baseline needs {missing} more run{'s' if missing > 1 else ''}"
    else:
        needed = "a baseline needs more runs at this level"
    if len(past.runs) < 2:
        return f"{needed}; two can be compared:  bench run SCENARIO.yaml --new && bench gate @last-1..@last"
    return f"{needed}; two runs can be compared now:  bench gate {past.runs[-2].run_id}..{past.runs[-1].run_id}"
