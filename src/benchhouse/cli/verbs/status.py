"""Show runs and their progress."""

import time
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.quantities import show_seconds
from benchhouse.schema.quoting import shortened

if TYPE_CHECKING:
    from benchhouse.api.run import RunStatus
    from benchhouse.api.stores import Destination

_MOST_RUNS = 20
_MOST_TRIALS = 5


@commands.verb(__doc__, "bench status   the newest runs", "bench status @last --watch   one run, until it has ended")
@commands.run_argument(default=None, required=False)
@click.option("--watch", is_flag=True, help="Refresh until the run has ended.")
def command(workspace: Workspace, run: str | None, watch: bool, as_json: bool) -> int:
    if run is None and not watch:
        return _list(workspace, as_json)
    chosen = workspace[run or "@last"]
    status = chosen.status()
    if as_json:
        screen.as_json(status)
    elif watch and screen.console().is_terminal:
        from rich.live import Live
        from rich.text import Text

        with Live(console=screen.console(), refresh_per_second=4, transient=True) as live:
            while status.state in ("running", "waiting"):
                live.update(Text("\n".join(_lines(status))))
                time.sleep(0.5)
                status = chosen.status()
    elif watch:
        while status.state in ("running", "waiting"):
            click.echo(f"{status.done}/{status.trials} {screen.outcomes(status.outcomes)}")
            time.sleep(2)
            status = chosen.status()
    if not as_json:
        click.echo("\n".join(_lines(status)))
        screen.unread_events(status)
        screen.note(f"next:  {status.next}")
    return Exit.TRIAL_FAILED if set(status.outcomes) - {"succeeded"} else Exit.GOOD


def _list(workspace: Workspace, as_json: bool) -> int:
    """Print the newest runs. A run whose files can't be read does not hide the others."""
    runs = workspace.runs(made_here=True)
    rows, code = [], Exit.GOOD
    for run in reversed(runs[-_MOST_RUNS:]):
        try:
            rows.append(run.status())
        except BenchError as error:
            screen.note(f"not listed: {error.message}")
            code = Exit.TRIAL_FAILED
    shared = _shared(workspace)
    if as_json:
        screen.as_json({"runs": rows, "shared": shared})
        return code
    for place in shared:
        screen.note(f"shared: {place.summary}" + (":  bench warehouse share" if place.missing else ""))
    if rows:
        cells = [
            (row.run_id, row.scenario, row.state, f"{row.done}/{row.trials}", screen.outcomes(row.outcomes))
            for row in rows
        ]
        screen.table(("run", "scenario", "state", "done", "outcomes"), cells)
        for row in rows:
            screen.unread_events(row)
        if len(runs) > _MOST_RUNS:
            screen.note(f'and {len(runs) - _MOST_RUNS:,} older: bench query "FROM benchmark_run_fact"')
        screen.note("next:  bench status RUN, bench report RUN")
    elif code == Exit.GOOD:
        screen.note(f"no runs in {workspace.root} yet; start one:  bench run SCENARIO.yaml")
    return code


def _shared(workspace: Workspace) -> "list[Destination]":
    """Return how much of the workspace has been sent to the destinations in workspace.yaml."""
    try:
        return workspace.warehouse.share(dry_run=True)
    except BenchError as error:
        screen.note(f"nothing is shared: {error.message}")
        return []


def _lines(status: "RunStatus") -> list[str]:
    from benchhouse.schema.trial import outcome_words

    lines = [
        f"run        {status.run_id}  ({status.scenario}, {status.experiment}, {status.executor})",
        f"state      {status.state}" + (f", process {status.owner_pid}" if status.owner_pid else ""),
        f"trials     {status.done} of {status.trials}: {screen.outcomes(status.outcomes)}{_others(status)}",
    ]
    if queue := status.queue:
        waits = ", ".join(f"{reason} {count}" for reason, count in queue.reasons.items())
        parts = [f"{queue.running} running", f"{queue.pending} waiting{f' ({waits})' if waits else ''}"]
        parts += [f"{left} not submitted"] if (left := status.states.get("not begun")) else []
        without = sum(queue.unsealed.values())
        evidence = f" ({without} without evidence)" if without else ""
        parts += [f"{queue.sealed + without} to be collected{evidence}"] if queue.sealed or without else []
        jobs = f"; job {shortened(queue.jobs)}" if queue.jobs else ""
        lines.append(f"{status.executor:<10} {', '.join(parts)}{jobs}")
    if status.waits:
        first = status.waits[0]
        slots = f"{screen.count(len(status.waits), 'slot')}, the first for {show_seconds(first.waited_s)}"
        lines.append(f"waiting    {slots}{f': a pod {first.says}' if first.says else ''}")
    if status.stopped_by == "budget":
        lines.append(f"stopped    {status.stopped}: raise it in the scenario and run that again")
    elif status.stopped:
        lines.append(f"stopped    {_first(status.stopped)}")
    for item in status.services:
        where = ", ".join(item.endpoints) or _first(item.message)
        whose = f" of trial {item.trial_id[:8]}" if item.trial_id else ""
        lines.append(f"service    {item.name}{whose}: {item.phase}{f', {where}' if where else ''}")
    if status.retries:
        lines.append(f"retries    {status.retries}")
    if status.running:
        lines.append(f"running    {shortened([name[:8] for name in status.running], 8)}")
    if status.estimated_left_s is not None:
        lines.append(f"left       about {screen.duration(status.estimated_left_s)}")
    invalid = [f"INVALID    {item.trial_id[:8]} {_first(item.reason)}" for item in status.invalid]
    failed = [
        f"failed     {item.trial_id[:8]} {outcome_words(item.outcome)}: {_first(item.reason)}"
        for item in status.failures
    ]
    return [*lines, *_cut(invalid), *_cut(failed)]


def _others(status: "RunStatus") -> str:
    """Return the trials that have not ended, as text; empty with a batch system, whose queue has its own line."""
    others = {state: count for state, count in status.states.items() if state not in status.outcomes}
    return f"; {screen.outcomes(others)}" if others and not status.queue else ""


def _cut(lines: list[str]) -> list[str]:
    """Return the first few lines, and how many more there are."""
    more = len(lines) - _MOST_TRIALS
    return [*lines[:_MOST_TRIALS], *([f"           and {more:,} more: --json names them all"] if more > 0 else [])]


def _first(text: str) -> str:
    """Return the first line: for a server's failure, its last output follows, which `bench logs` shows."""
    return text.partition("\n")[0].removesuffix(":")
