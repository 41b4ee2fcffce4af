"""Show runs and how far they are."""

import time
from typing import TYPE_CHECKING

import click

from benchhouse.api import screen
from benchhouse.cli import options
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.lists import shortened

_MOST_TRIALS = 5

if TYPE_CHECKING:
    from benchhouse.schema.layout import Workspace


@click.command(help=__doc__)
@options.run_argument(default=None, required=False)
@click.option("--watch", is_flag=True, help="Refresh until the run has ended.")
@options.json_option
@click.pass_context
def command(ctx: click.Context, run: str | None, watch: bool, as_json: bool) -> int:
    from benchhouse.runs import status

    workspace = options.workspace(ctx).folder
    if run is None and not watch:
        return _list(workspace, as_json)
    run_id = status.find_run(workspace, run or "@last")
    state = status.status(workspace, run_id)
    if as_json:
        screen.as_json(state)
    elif watch and screen.console().is_terminal:
        from rich.live import Live
        from rich.text import Text

        with Live(console=screen.console(), refresh_per_second=4, transient=True) as live:
            while state["state"] in ("running", "waiting"):
                live.update(Text("\n".join(_lines(state))))
                time.sleep(0.5)
                state = status.status(workspace, run_id)
    elif watch:
        while state["state"] in ("running", "waiting"):
            click.echo(f"{state['done']}/{state['trials']} {screen.outcomes(state['outcomes'])}")
            time.sleep(2)
            state = status.status(workspace, run_id)
    if not as_json:
        click.echo("\n".join(_lines(state)))
        screen.unread_events(state)
        screen.note(f"next:  {state['next']}")
    bad = set(state["outcomes"]) - {"succeeded"}
    return Exit.TRIAL_FAILED if bad else Exit.GOOD


def _list(workspace: "Workspace", as_json: bool) -> int:
    """The newest runs; one whose files can't be read does not hide the others."""
    from benchhouse.runs import status

    rows, code = [], Exit.GOOD
    for name in reversed(status.list_runs(workspace)[-20:]):
        try:
            rows.append(status.status(workspace, name))
        except BenchError as error:
            screen.note(f"not listed: {error.message}")
            code = Exit.TRIAL_FAILED
    if as_json:
        screen.as_json(rows)
    elif rows:
        columns = ("run", "scenario", "state", "done", "outcomes")
        screen.table(
            columns,
            [
                (row["run_id"], row["scenario"], row["state"], f"{row['done']}/{row['trials']}",
                 screen.outcomes(row["outcomes"]))
                for row in rows
            ],
        )  # fmt: skip
        for row in rows:
            screen.unread_events(row)
        screen.note("next:  bench status RUN, bench report RUN")
    elif code == Exit.GOOD:
        screen.note(f"no runs in {workspace.root} yet; start one:  bench run SCENARIO.yaml")
    return code


def _lines(state: dict) -> list[str]:  # type: ignore[type-arg]
    from benchhouse.schema.quantities import show_seconds
    from benchhouse.schema.trial import outcome_words

    left = state["estimated_left_s"]
    lines = [
        f"run        {state['run_id']}  ({state['scenario']}, {state['experiment']}, {state['executor']})",
        f"state      {state['state']}" + (f", process {state['owner_pid']}" if state["owner_pid"] else ""),
        f"trials     {state['done']} of {state['trials']}: {screen.outcomes(state['outcomes'])}",
    ]
    if queue := state["queue"]:
        waits = ", ".join(f"{reason} {count}" for reason, count in queue["reasons"].items())
        parts = [f"{queue['running']} running", f"{queue['pending']} waiting{f' ({waits})' if waits else ''}"]
        parts += [f"{queue['sealed']} to be collected"] if queue["sealed"] else []
        jobs = f"; job {shortened(queue['jobs'])}" if queue["jobs"] else ""
        lines.append(f"{state['executor']:<10} {', '.join(parts)}{jobs}")
    if state["stopped_by"] == "budget":
        lines.append(f"stopped    {state['stopped']}: raise it in the scenario and run that again")
    elif state["stopped"]:
        lines.append(f"stopped    {_first(state['stopped'])}")
    for item in state["services"]:
        where = ", ".join(item["endpoints"]) or _first(item["message"])
        whose = f" of trial {item['trial_id'][:8]}" if item["trial_id"] else ""
        lines.append(f"service    {item['name']}{whose}: {item['phase']}{f', {where}' if where else ''}")
    if state["retries"]:
        lines.append(f"retries    {state['retries']}")
    if state["running"]:
        lines.append(f"running    {shortened([name[:8] for name in state['running']], 8)}")
    if left is not None:
        lines.append(f"left       about {show_seconds(left)}")
    invalid = [f"INVALID    {item['trial_id'][:8]} {_first(item['reason'])}" for item in state["invalid"]]
    failed = [
        f"failed     {item['trial_id'][:8]} {outcome_words(item['outcome'])}: {_first(item['reason'])}"
        for item in state["failures"]
    ]
    return [*lines, *_cut(invalid), *_cut(failed)]


def _cut(lines: list[str]) -> list[str]:
    """The first few, and how many more there are."""
    more = len(lines) - _MOST_TRIALS
    return [*lines[:_MOST_TRIALS], *([f"           and {more:,} more: --json names them all"] if more > 0 else [])]


def _first(text: str) -> str:
    """Its first line: below that of a server are its last words, which `bench logs` has."""
    return text.partition("\n")[0].removesuffix(":")
