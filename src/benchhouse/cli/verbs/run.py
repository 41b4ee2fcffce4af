"""Plan, run, collect and show a scenario; after an interruption, only what is missing."""

import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

import click

from benchhouse.cli import options, show
from benchhouse.cli.progress import RunProgress
from benchhouse.schema.errors import BenchError, Exit

_MOST_TEXTS = 3


@click.command(help=__doc__)
@options.scenario_argument(required=False)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="The same as SCENARIO.")
@click.option("--resume", metavar="RUN", shell_complete=options.complete_run, help="Carry on that run.")
@click.option(
    "--rerun-failed",
    is_flag=True,
    help="Run the failed and invalid trials of that run (or of the last run of this plan) again.",
)
@click.option("--new", "fresh", is_flag=True, help="Start a new run even if one of the same plan is unfinished.")
@click.option("--parallel", type=click.IntRange(min=1), help="Trials at a time; the default is the scenario's, 1.")
@click.option(
    "--textfile",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also keep the results as a Prometheus text file in DIR, for node exporter's textfile collector.",
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Of the text file: cluster, region or node_pool."
)
@click.option("--dry-run", is_flag=True, help="Print what would be started, and stop.")
@options.where_options
@options.json_option
@options.logical_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    scenario: Path | None,
    config: Path | None,
    resume: str | None,
    rerun_failed: bool,
    fresh: bool,
    parallel: int | None,
    textfile: Path | None,
    labels: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **where: str | None,
) -> int:
    from benchhouse.api import exporting, planning, running

    workspace = options.workspace(ctx)
    path = scenario or config
    given = exporting.checked_labels(textfile, labels)
    if resume and (path or fresh or dry_run or where["runtime"]):
        raise BenchError(
            "--resume carries on a run as it was planned",
            "leave out SCENARIO, --new, --dry-run and --runtime; what is missing may run elsewhere: --executor, --site",
        )
    settings: dict[str, Any] = {"parallel": parallel, "rerun_failed": rerun_failed, "as_json": as_json}
    if resume:
        ledger, prepared = running.resume_run(workspace, resume, planning.Where(**where))
        return _carry_out(workspace, ledger, prepared, textfile, given, **settings)
    if path is None:
        raise BenchError("give a scenario file", "bench run SCENARIO.yaml, or bench run --resume RUN")
    code = int(Exit.GOOD)
    for prepared in planning.prepare_all(workspace, path, planning.Where(**where)):
        if dry_run:
            click.echo(running.render(workspace, prepared))
            continue
        ledger = running.open_run(workspace, prepared, path, fresh, show.note, finished_too=rerun_failed)
        ended = _carry_out(workspace, ledger, prepared, textfile, given, **settings)
        if ended == Exit.INTERRUPTED:
            return ended
        code = max(code, ended)
    return code


def _carry_out(
    workspace: Any,
    ledger: Any,
    prepared: Any,
    textfile: Path | None,
    labels: dict[str, str],
    *,
    parallel: int | None,
    rerun_failed: bool,
    as_json: bool,
) -> int:
    """One run to its end, or to a Ctrl-C."""
    from benchhouse.api import exporting, following, running

    for line in prepared.notes:
        show.note(f"note: {line}")
    run_id = ledger.folder.run_id
    export = exporting.open_export(prepared, textfile, run_id, labels, show.note)
    # Also where a script started this in the background, with SIGINT ignored; batch systems send SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with RunProgress(run_id, prepared.plan) as progress:
            summary = running.execute(
                workspace, prepared, ledger, progress.update,
                parallel=parallel, rerun_failed=rerun_failed, say=progress.say, export=export,
            )  # fmt: skip
    except KeyboardInterrupt:
        state = following.status(workspace, run_id)
        show.note(f"\ninterrupted with {state['done']} of {show.count(state['trials'], 'trial')} done, which are kept")
        _collect(workspace, run_id)
        show.note(f"carry on:  bench run --resume {run_id}")
        return Exit.INTERRUPTED
    except BenchError:
        with contextlib.suppress(BenchError, OSError):  # what is done is kept and shown, whatever broke the run off
            _collect(workspace, run_id)
        raise
    skipped = _collect(workspace, run_id)
    _show_end(workspace, summary, as_json)
    if workspace.alarms.is_file():
        from benchhouse.api import alarms

        alarms.after_run(workspace, show.note)
    return Exit.TRIAL_FAILED if skipped else summary.exit_code


def _collect(workspace: Any, run_id: str) -> list[str]:
    """Collect, and tell of every sealed trial that could not be; returns these."""
    from benchhouse.api import following

    collected = following.collect(workspace, run_id)
    show.unread_events(collected)
    skipped: list[str] = collected["skipped"]
    for line in skipped:
        show.note(f"not collected: {line}")
    return skipped


def _show_warnings(warnings: list[tuple[str, str, int]]) -> None:
    """One line a text, at most three of one code."""
    for code in dict.fromkeys(code for code, _, _ in warnings):
        texts = [(text, number) for name, text, number in warnings if name == code]
        for text, number in texts[:_MOST_TEXTS]:
            show.note(f"warning, {show.count(number, 'trial')}: {code}: {text}")
        if len(texts) > _MOST_TEXTS:
            show.note(
                f"... and {len(texts) - _MOST_TEXTS} other texts of {code}: bench report, or meta.json of a trial"
            )


def _show_end(workspace: Any, summary: Any, as_json: bool) -> None:
    from benchhouse.api import following, looking

    failures, invalid = (tell(workspace, summary.run_id) for tell in (following.failures, following.invalid))
    if as_json:
        show.as_json(
            {
                "run_id": summary.run_id,
                "scenario": summary.scenario,
                "outcomes": summary.outcomes,
                "complete": summary.complete,
                "seconds": summary.seconds,
                "points": looking.points(workspace, [summary.run_id]),
                "failures": failures,
                "invalid": invalid,
            }
        )
        return
    from benchhouse.cli.failures import failure_blocks, invalid_blocks
    from benchhouse.cli.tables import points_table

    points_table(looking.points(workspace, [summary.run_id]), looking.tried(workspace, [summary.run_id]))
    _show_warnings(following.warnings(workspace, summary.run_id))
    failure_blocks(failures)
    invalid_blocks(invalid)
    sys.stdout.flush()
    show.note(f"run {summary.run_id}: {show.outcomes(summary.outcomes)} in {summary.seconds:.1f} s")
    if summary.stopped_by == "service":
        show.note(f"stopped, as its trials need it: {summary.stopped.partition(chr(10))[0].removesuffix(':')}")
        show.note(f"carry on:  bench run --resume {summary.run_id} --rerun-failed")
    elif summary.stopped:
        show.note(f"stopped: {summary.stopped}. Raise it in the scenario, then:  bench run SCENARIO.yaml")
    elif not summary.complete:
        show.note(f"lost trials are run again by:  bench run --resume {summary.run_id}")
    elif not failures and not invalid:
        show.note(f"next:  bench report {summary.run_id}")
    else:
        show.note(f"next:  {following.status(workspace, summary.run_id)['next']}")
