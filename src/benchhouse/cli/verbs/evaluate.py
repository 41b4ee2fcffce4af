"""Run registered benchmarks of a nexus: all, or those that a change affects, as one plan within one budget."""

from typing import TYPE_CHECKING, Any

import click

from benchhouse.api import screen
from benchhouse.api.workspace import Workspace
from benchhouse.cli import commands
from benchhouse.cli.verbs.run import ResumableProgress, ShownRun, interrupt_on_signals
from benchhouse.schema.errors import BenchError, Exit

if TYPE_CHECKING:
    from benchhouse.api.evaluation import Evaluation
    from benchhouse.nexus.evaluation import EvaluatedBenchmark, EvaluationPlan

_MOST_FILES = 3


@commands.verb(
    f"{__doc__}\n\nAll are planned first. Points that an earlier run measured under the same conditions (code, "
    "environment, place) are not measured again. One run follows the other; one that fails stops no other. Exit code "
    "0: all is measured. 1: a trial failed, or the budget was spent. 2: a benchmark can't be planned. 5: the plan asks "
    "for more than --budget, or trusted.yaml does not give you the role admin.",
    "bench evaluate --changed-since origin/main --dry-run   what a change touches, and what that would take",
    "bench evaluate --changed-since v1.2 --executor slurm --budget wall=8h --budget trials=500",
    "bench evaluate --model ibm/prithvi",
    "bench evaluate --all --again   measure also what was measured before",
    "bench evaluate --resume @last   carry on after Ctrl-C; see: bench evaluations",
)
@commands.which_options
@commands.where_options
@commands.whole_budget_option
@click.option("--again", is_flag=True, help="Reuse nothing that was measured before.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and stop.")
@click.option("--resume", metavar="EVALUATION", help="Do what is missing of that one.")
@commands.nexus_option
def command(
    workspace: Workspace, /, budgets: tuple[str, ...], dry_run: bool, resume: str | None, as_json: bool, **wanted: Any
) -> int:
    if resume and (budgets or dry_run or any(value for name, value in wanted.items() if name != "nexus")):
        raise BenchError("--resume carries on an evaluation as it was planned", "leave out the other options")
    interrupt_on_signals()
    progress = ResumableProgress() if as_json else ShownRun(as_json=False)
    show: dict[str, Any] = {"progress": progress, "each": getattr(progress, "show", _ignore)}
    wanted["budget"] = commands.budget_of(budgets)
    try:
        if resume:
            evaluation = workspace.evaluations.carry_on(resume, **show)
        else:
            evaluation = workspace.evaluate(dry_run=dry_run, **show, **wanted)
    except KeyboardInterrupt:
        again = resume or "@last"
        screen.note(f"\ninterrupted; what is done is kept\ncarry on:  bench evaluate --resume {again}")
        return Exit.INTERRUPTED
    if as_json:
        screen.as_json(evaluation)
    else:
        _show(evaluation, dry_run=dry_run)
    return evaluation.exit_code


def _ignore(run: object) -> None:
    pass


def _show(evaluation: "Evaluation", *, dry_run: bool) -> None:
    plan = evaluation.plan
    rows = [_row(item) for item in plan.benchmarks]
    if rows:
        columns = ("benchmark", "state", "points", "reused", "trials", "time", "because of")
        screen.table(columns, rows, right=columns[2:6], whole=("benchmark", "state"))
    for item in plan.benchmarks:
        if item.error:
            click.echo(screen.on_stderr(f"error: {item.benchmark}: {item.error}"), err=True)
    for run in evaluation.runs:
        if run.state != "complete":
            what = f"{run.benchmark}: {run.state}: {run.why or screen.outcomes(run.outcomes)}"
            screen.note(f"{what}; next:  {run.next}" if run.next else what)
    screen.note(_summary(plan))
    if dry_run and plan.trials:
        screen.note("start it:  the same command without --dry-run")
    elif evaluation.runs:
        screen.note("next:  bench leaderboard, bench report, bench compare")


def _row(item: "EvaluatedBenchmark") -> tuple[Any, ...]:
    time = screen.duration(item.seconds) if item.seconds is not None else "unknown" if item.trials else ""
    more = f" and {len(item.why) - _MOST_FILES} more" if len(item.why) > _MOST_FILES else ""
    because = ", ".join(item.why[:_MOST_FILES]) + more
    return item.benchmark, item.state, item.points or "", item.reused or "", item.trials or "", time, because


def _summary(plan: "EvaluationPlan") -> str:
    changed = f"{screen.count(len(plan.changed), 'changed file')}: " if plan.changed else ""
    if not plan.benchmarks:
        return f"{changed}no registered benchmark is touched"
    parts = [f"{plan.count(state)} {state}" for state in ("to run", "reused", "broken") if plan.count(state)]
    time = f", about {screen.duration(plan.seconds)}" if plan.seconds is not None else ""
    cost = f", cost about {screen.number(plan.cost)}" if plan.cost is not None else ""
    total = f"{screen.count(plan.trials, 'trial')}{time}{cost}, plan {plan.plan_digest[:12]}" if plan.trials else ""
    counted = f"{screen.count(len(plan.benchmarks), 'benchmark')}, {', '.join(parts)}"
    return f"{changed}{counted}{'; ' + total if total else ''}"
