"""Plan, run, collect, and show a scenario; after an interruption, only the missing trials."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.run import Run, RunContract

_MOST_TEXTS = 3


@commands.verb(
    __doc__,
    "bench run scenarios/first.yaml   plan, run, collect, show",
    "bench run scenarios/first.yaml --dry-run   only print what would start",
    "bench run scenarios/first.yaml --executor slurm   elsewhere: the same plan",
    "bench run scenarios/first.yaml --contract contract.yaml   held to what it promises",
    "bench run --resume @last   carry on after Ctrl-C",
)
@commands.scenario_or_config
@click.option("--resume", metavar="RUN", shell_complete=commands.complete_run, help="Carry on that run.")
@click.option("--rerun-failed", is_flag=True,
              help="Run failed and invalid trials of that run (or of the last run of this plan) again.")  # fmt: skip
@click.option("--new", is_flag=True, help="Start a new run even if one of the same plan is unfinished.")
@click.option("--parallel", type=click.IntRange(min=1), help="Trials at a time; the default is the scenario's, 1.")
@click.option("--textfile", type=commands.FILE, metavar="DIR",
              help="Also keep the results as a Prometheus text file in DIR, for node exporter's textfile collector."
              )  # fmt: skip
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE",
              help="Of the text file: cluster, region or node_pool.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print what would be started, and stop.")
@commands.where_options
@commands.contract_option
@commands.logical_options
def command(
    workspace: Workspace, /, scenario: Path | None, config: Path | None, resume: str | None, new: bool, dry_run: bool,
    as_json: bool, **settings: Any,
) -> int:  # fmt: skip
    path = scenario or config
    settings["labels"] = commands.pairs(settings["labels"], "--label", "NAME=VALUE")
    where = {key: settings[key] for key in ("executor", "runtime", "site", "contract")}
    if resume and (path or new or dry_run or where["runtime"] or where["contract"]):
        raise BenchError(
            "--resume carries on a run as it was planned",
            "leave out SCENARIO, --new, --dry-run, --runtime and --contract; what is missing may run elsewhere: "
            "--executor, --site",
        )
    if not resume and path is None:
        raise BenchError("give a scenario file", "bench run SCENARIO.yaml, or bench run --resume RUN")
    if dry_run and path:
        from benchhouse.cli.verbs.plan import show_jobs

        show_jobs(workspace, path, where)
        return Exit.GOOD
    interrupt_on_signals()
    progress = ShownRun(as_json)
    try:
        if resume:
            progress.show(workspace.resume(resume, progress=progress, **settings))
        elif path:
            workspace.run_all(path, progress=progress, new=new, each=progress.show, **settings)
    except KeyboardInterrupt:
        if not progress.run_id:
            raise
        status = workspace[progress.run_id].status()
        done = f"{status.done} of {screen.count(status.trials, 'trial')} done, which are kept"
        screen.note(f"\ninterrupted with {done}\ncarry on:  bench run --resume {status.run_id}")
        return Exit.INTERRUPTED
    return progress.exit_code


def interrupt_on_signals() -> None:
    """Stop on SIGINT and SIGTERM, even if a script ignored SIGINT for this process; batch systems send SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


class ResumableProgress(screen.RunProgress):
    """Remembers which run an interruption leaves unfinished."""

    run_id = ""

    def begin(self, run_id: str, plan: Any) -> None:
        self.run_id = run_id
        super().begin(run_id, plan)


class ShownRun(ResumableProgress):
    """Shows each run while it is under way, and its result when it ends."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json
        self.exit_code = Exit.GOOD

    def show(self, run: "Run") -> None:
        over = run.summary and run.summary.complete  # a run that continues may still get what is missing
        contract = run.contract() if over and run.record.conditions.get("contract") else None
        rejected = contract and contract.mode == "rejected"
        self.exit_code = max(self.exit_code, run.exit_code, Exit.CLAIM_NOT_SAFE if rejected else Exit.GOOD)
        _show_json(run, contract) if self.as_json else _show(run, contract)


def _show_json(run: "Run", contract: "RunContract | None") -> None:
    assert run.summary is not None
    summary = {name: getattr(run.summary, name) for name in ("run_id", "scenario", "outcomes", "complete", "seconds")}
    if contract:
        settled = {"name": contract.terms.name, "digest": contract.terms.digest, "mode": contract.mode}
        summary["contract"] = settled | contract.settled.model_dump() | {"guarantees": contract.guarantees}
    screen.as_json(summary | {"points": run.points(), "failures": run.failures(), "invalid": run.invalid()})


def _show(run: "Run", contract: "RunContract | None") -> None:
    summary, failures, invalid = run.summary, run.failures(), run.invalid()
    assert summary is not None
    run.points().show()
    _show_warnings(run)
    screen.failure_blocks(failures)
    screen.invalid_blocks(invalid)
    sys.stdout.flush()
    screen.note(f"run {run.id}: {screen.outcomes(summary.outcomes)} in {summary.seconds:.1f} s")
    if contract:
        observed = sum(item.observed for item in contract.guarantees)
        counted = f"{observed} of {len(contract.guarantees)} guarantees observed"
        screen.note(f"contract {contract.terms.name}: {counted}; {contract.settled.sentence()}")
    if summary.stopped_by == "service":
        screen.note(f"stopped, as its trials need it: {summary.stopped.partition(chr(10))[0].removesuffix(':')}")
        screen.note(f"carry on:  bench run --resume {run.id} --rerun-failed")
    elif summary.stopped:
        screen.note(f"stopped: {summary.stopped}. Raise it in the scenario, then:  bench run SCENARIO.yaml")
    elif not summary.complete:
        screen.note(f"lost trials are run again by:  bench run --resume {run.id}")
    elif not failures and not invalid:
        screen.note(f"next:  bench report {run.id}")
    else:
        screen.note(f"next:  {run.status().next}")


def _show_warnings(run: "Run") -> None:
    """Print one line per text, at most three texts per code."""
    warnings = run.warnings()
    for code in dict.fromkeys(warning.code for warning in warnings):
        same = [warning for warning in warnings if warning.code == code]
        for warning in same[:_MOST_TEXTS]:
            screen.note(f"warning, {screen.count(warning.trials, 'trial')}: {code}: {warning.text}")
        if len(same) > _MOST_TEXTS:
            more = len(same) - _MOST_TEXTS
            screen.note(f"... and {more} other texts of {code}: bench report, or meta.json of a trial")
