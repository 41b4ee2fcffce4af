"""Time commands, and compare them: one line, as with hyperfine, kept as a run like any other."""

import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchhouse.cli import options, show
from benchhouse.cli.examples import examples
from benchhouse.cli.progress import RunProgress
from benchhouse.schema.errors import Exit

if TYPE_CHECKING:
    from benchhouse.api.timing import Timing


@click.command(
    help=f"{__doc__}\n\nThe commands take turns and run in this folder. Exit code 1 where one of them failed."
    + examples(
        "bench time 'sleep 0.1' 'sleep 0.2'",
        "bench time --runs 50 --warmup 3 -n old './old < data' -n new './new < data'",
        "bench time --no-shell 'gzip -9 -c data.txt' --json",
    )
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
@options.json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    commands: tuple[str, ...],
    names: tuple[str, ...],
    runs: int,
    warmup: int,
    no_shell: bool,
    prepare: str,
    as_json: bool,
) -> int:
    from benchhouse.api import following, timing

    workspace, folder = options.workspace(ctx), Path.cwd()
    request = timing.TimingRequest(commands, names, runs, warmup, not no_shell, prepare)
    prepared = timing.prepare_timing(workspace, request, folder)
    ledger = timing.open_timing(workspace, prepared, folder, show.note)
    run_id = ledger.folder.run_id
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with RunProgress(run_id, prepared.plan) as progress:
            summary = timing.carry_out(workspace, prepared, ledger, progress.update, progress.say)
    except KeyboardInterrupt:
        show.note(f"\ninterrupted; carry on:  bench run --resume {run_id}")
        return Exit.INTERRUPTED
    found = timing.timing(workspace, request, run_id)
    if as_json:
        show.as_json(asdict(found) | {"outcomes": summary.outcomes, "exit_code": int(summary.exit_code)})
        return summary.exit_code
    from benchhouse.cli.failures import failure_blocks

    _show(found)
    failure_blocks(following.failures(workspace, run_id))
    show.note(f"next:  bench show {run_id}, bench report {run_id}")
    return summary.exit_code


def _show(found: "Timing") -> None:
    from benchhouse.api.looking import quantity

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f"{quantity(low, 'ms')} to {quantity(high, 'ms')}"

    if found.commands:
        rows = [
            (item.name, quantity(item.mean_ms, "ms"), interval(item.low_ms, item.high_ms), quantity(item.min_ms, "ms"),
             quantity(item.max_ms, "ms"), item.runs)
            for item in found.commands
        ]  # fmt: skip
        columns = ("command", "mean", "95% interval", "min", "max", "runs")
        show.table(columns, rows, right=columns[1:], whole=columns[1:])
    for item in found.speedups:
        sure = "" if item.low is None or item.high is None else f" ({item.low:.2f} to {item.high:.2f})"
        fastest, other = (f"'{name}'" if " " in name else name for name in (item.fastest, item.other))
        if item.certain:
            click.echo(f"{fastest} ran {item.ratio:.2f} times faster than {other}{sure}")
        else:
            click.echo(f"{fastest} and {other}: no evidence of a difference, ratio {item.ratio:.2f}{sure}")
