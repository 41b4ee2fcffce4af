"""Time commands, and compare them: one line, as with hyperfine, stored as a run like any other."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli.commands import verb
from benchhouse.cli.verbs.run import ResumableProgress, interrupt_on_signals
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.timing import Timing


@verb(
    f"{__doc__}\n\nThe commands take turns and run in this folder. Exit code 1 where one of them failed.",
    "bench time 'sleep 0.1' 'sleep 0.2'",
    "bench time --runs 50 --warmup 3 -n old './old < data' -n new './new < data'",
    "bench time --no-shell 'gzip -9 -c data.txt' --json",
)
@click.argument("commands", nargs=-1, required=True, metavar="COMMAND...")
@click.option("-n", "--name", "names", multiple=True, help="Name of a command in tables; once for each, in order.")
@click.option("-r", "--runs", default=10, show_default=True, type=click.IntRange(2, 100_000),
              help="Measured runs of each command, at least.")  # fmt: skip
@click.option("-w", "--warmup", default=1, show_default=True, type=click.IntRange(0, 1000),
              help="Rounds before them that are not measured.")  # fmt: skip
@click.option(
    "-N", "--no-shell", is_flag=True, help="Start the program without /bin/sh, whose own time counts otherwise."
)
@click.option("-p", "--prepare", default="", metavar="COMMAND", help="Run this before each run, not timed.")
def command(workspace: Workspace, /, commands: tuple[str, ...], no_shell: bool, as_json: bool, **settings: Any) -> int:
    interrupt_on_signals()
    progress = ResumableProgress()
    try:
        run, timing = workspace.time(*commands, shell=not no_shell, progress=progress, **settings)
    except KeyboardInterrupt:
        if not progress.run_id:
            raise
        screen.note(f"\ninterrupted; carry on:  bench run --resume {progress.run_id}")
        return Exit.INTERRUPTED
    assert run.summary is not None
    if as_json:
        ended = {"outcomes": run.summary.outcomes, "exit_code": int(run.exit_code)}
        screen.as_json(screen.plain(timing) | ended)
        return run.exit_code
    _show(timing)
    screen.failure_blocks(run.failures())
    screen.note(f"next:  bench show {run.id}, bench report {run.id}")
    return run.exit_code


def _show(timing: "Timing") -> None:
    quantity = screen.quantity

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f"{quantity(low, 'ms')} to {quantity(high, 'ms')}"

    if timing.commands:
        rows = [
            (item.name, quantity(item.mean_ms, "ms"), interval(item.low_ms, item.high_ms), quantity(item.min_ms, "ms"),
             quantity(item.max_ms, "ms"), item.runs)
            for item in timing.commands
        ]  # fmt: skip
        columns = ("command", "mean", "95% interval", "min", "max", "runs")
        screen.table(columns, rows, right=columns[1:], whole=columns[1:])
    for item in timing.speedups:
        sure = "" if item.low is None or item.high is None else f" ({item.low:.2f} to {item.high:.2f})"
        fastest, other = (f"'{name}'" if " " in name else name for name in (item.fastest, item.other))
        if item.certain:
            click.echo(f"{fastest} ran {item.ratio:.2f} times faster than {other}{sure}")
        else:
            click.echo(f"{fastest} and {other}: no evidence of a difference, ratio {item.ratio:.2f}{sure}")
