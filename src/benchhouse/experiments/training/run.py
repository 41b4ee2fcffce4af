"""Experiment `training.run`: start any trainer with its ranks, and compute figures of the whole from their records."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pydantic import Field, field_validator, model_validator

from benchhouse.experiments.emitted_records import VARIABLE, Emitted, install_emit_client
from benchhouse.experiments.printed_metrics import PrintedMetric, PrintedValues
from benchhouse.experiments.staging import WithData, fill_data, fill_variables, staged_data
from benchhouse.experiments.training import figures
from benchhouse.experiments.training.convergence import mean_loss
from benchhouse.experiments.training.efficiency import (
    EFFICIENCY,
    Goals,
    RankPlacement,
    report_convergence,
    report_spending,
    report_utilisation,
)
from benchhouse.experiments.training.in_process import check_inside, run_inside
from benchhouse.experiments.training.interrupts import METRICS as RELIABILITY
from benchhouse.experiments.training.interrupts import find_faults, report_reliability, tell_failure
from benchhouse.experiments.training.launch import NotLaunched, RankProcess, run_training
from benchhouse.experiments.training.launchers import RankSettings, prepare
from benchhouse.experiments.training.node_clocks import NodeClocks, put_on_one_clock
from benchhouse.experiments.training.placement import check_cores, check_world, record_placement
from benchhouse.experiments.training.profiles import (
    ProfiledSteps,
    ProfileFolder,
    longest_untouched,
    record_profile,
)
from benchhouse.experiments.training.ranks import METRICS as RANK_METRICS
from benchhouse.experiments.training.ranks import report_ranks
from benchhouse.experiments.training.sources import (
    Records,
    check_records,
    describe_unmatched,
    find_records,
    keep_emitted,
)
from benchhouse.experiments.training.stacks import TELLS_STACK
from benchhouse.experiments.training.steps import steps_of
from benchhouse.experiments.training.watch import FLOOR_S, TIMES, ProgressWatch
from benchhouse.load.metrics import higher, lower
from benchhouse.schema.experiment import Context, experiment
from benchhouse.schema.model import Model, empty_list
from benchhouse.schema.patterns import compiled
from benchhouse.schema.quantities import Seconds
from benchhouse.schema.quoting import quote
from benchhouse.schema.telemetry import STEADY

_SHOWN = 300  # characters of a rank's last lines in a message
METRICS = (
    lower(
        "step_time",
        "ms",
        "time of a step, that of its slowest rank; measured steps only",
        "latency",
        primary=True,
    ),
    higher(
        "tokens_per_s",
        "tokens/s",
        "tokens of all ranks / time from the first measured step to the last one",
        "throughput",
    ),
    higher("samples_per_s", "samples/s", "samples of all ranks / time from the first measured step to the last one"),
    lower("time_to_first_step", "s", "from the start of the ranks to the end of the first step of all of them"),
    lower("data_share", "1", "data_s of all ranks / time of their measured steps"),
    lower("comm_share", "1", "comm_s of all ranks (wait for others that nothing hides) / time of their measured steps"),
    higher("cpu_share", "1", "cpu_s of all ranks / time of their measured steps; below 1 where ranks lack a core"),
    lower("checkpoint_time", "s", "checkpoint_s of the slowest rank, of each step that wrote a checkpoint"),
    *RANK_METRICS,
    *RELIABILITY,
    lower("loss", "1", "loss of the last step, mean of the ranks that tell it"),
    *EFFICIENCY,
)


class Trainer(Model):
    """The program of one rank."""

    argv: list[str] = Field(
        default_factory=list, description="Program and arguments, without a shell, the same for all ranks."
    )
    function: str = Field(
        "",
        pattern=r"^$|^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="Instead of a program: `package.module:function`, called in the trial's own process; one rank.",
    )
    name: str = Field("", description="Name in reports.")
    torchrun: str = Field("", description="For `launcher: torchrun`: the program; by default the one beside argv's.")
    python: str = Field("", description="Python that has torch, to measure the peak; by default that of the program.")
    price_per_hour: float | None = Field(None, ge=0, description="Of all machines that train, in $ an hour.")

    @model_validator(mode="after")
    def _one_trainer(self) -> Self:
        if bool(self.argv) == bool(self.function):
            raise ValueError("give argv, a program, or function, not both" if self.argv else "give argv, a program")
        return self


class TrainingWorkload(RankSettings, Goals, WithData):
    """The number of ranks, how they are started, and the source of their records."""

    warmup: int | None = Field(
        None, ge=0, description="Steps that are not measured; by default up to a change point in the time of a step."
    )
    hang_after: Seconds | None = Field(
        None,
        gt=0,
        description="A rank that had told steps hangs when it tells none for so long; the ranks are then asked where "
        f"they are, and ended. By default {FLOOR_S:.0f} s, or {TIMES:.0f} steps if that is more; with patterns never.",
    )
    patterns: dict[str, str] = Field(
        default_factory=dict,
        description="For a program that emits nothing: by name (step, loss, tokens, ...) a regular expression with one "
        "group around the number; a line in which `step` is found is a record.",
    )
    metrics: list[PrintedMetric] = Field(
        default_factory=empty_list,
        description="Further numbers that ranks print, each by its pattern, or emit, each by its name; with them a "
        "program need not tell its steps.",
    )
    profile: ProfiledSteps | None = Field(
        None, description="Steps under torch.profiler, of a program that loops or calls back by `benchhouse_training`."
    )

    @field_validator("patterns")
    @classmethod
    def _groups(cls, patterns: dict[str, str]) -> dict[str, str]:
        for name, pattern in patterns.items():
            try:
                groups = compiled(pattern).groups
            except ValueError as error:
                raise ValueError(f"{name}: {quote(pattern)} is {error}") from error
            if groups != 1:
                raise ValueError(f"{name}: {pattern!r} has {groups} groups; put exactly one around the number")
        if patterns and "step" not in patterns:
            raise ValueError("patterns need one for step: it says which line is a record")
        return patterns

    @field_validator("metrics")
    @classmethod
    def _own_names(cls, metrics: list[PrintedMetric]) -> list[PrintedMetric]:
        taken = {metric.name for metric in METRICS}
        for metric in metrics:
            if metric.name in taken:
                raise ValueError(f"{metric.name} is measured by the experiment itself, or twice: choose another name")
            taken.add(metric.name)
        return metrics


@experiment("training.run", version="1.0", metrics=METRICS, component="training")
def _train(target: Trainer, workload: TrainingWorkload, ctx: Context) -> None:
    """Run a trainer with its ranks: time of a step, throughput, waits, restarts and goodput, by the steps it tells."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(dir=ctx.artifacts.resolve(), prefix="emitted-"))
        profiles = stack.enter_context(ProfileFolder(ctx.artifacts.resolve(), workload.profile))
        if target.function:
            check_inside(workload, ctx)
        data = stack.enter_context(staged_data(workload.data, ctx))
        workload = workload.model_copy(update={"environment": fill_variables(workload.environment, data)})
        argv = [fill_data(word, data) for word in target.argv] or [sys.executable]
        launch, launcher = prepare(argv, target.torchrun, workload, Path(folder) / "ranks", ctx)
        variables = {VARIABLE: folder, **profiles.variables, **install_emit_client(Path(folder), launch.environment)}
        launch = replace(launch, environment={**TELLS_STACK, **launch.environment, **variables})
        workload = workload.model_copy(update={"ranks": launch.ranks})
        watch = partial(ProgressWatch, Path(folder), launch, workload.hang_after, lines=bool(workload.patterns))
        clocks = stack.enter_context(NodeClocks(launch))
        began_s = time.monotonic()
        try:
            if target.function:
                training = run_inside(target.function, launch, ctx)
            else:
                training = run_training(launch, launcher, workload.max_restarts, workload.timeout, watch)
        except (NotLaunched, OSError) as error:
            ctx.fail("not_launched", str(error))
        attempts = training.attempts
        ended_s = time.monotonic()
        clocks.remeasure()
        emitted = keep_emitted(Path(folder), ctx.artifacts)
    put_on_one_clock(clocks, [*emitted, *profiles.processes], attempts, ctx)
    records = find_records(emitted, attempts, workload.patterns, profiles.processes)
    ctx.metadata(records_from=records.source, attempts=len(attempts))
    record_placement(training, launch, workload, ctx)
    check_records(records, ctx)
    told = steps_of(records.processes)
    progress = figures.progress_of(told, check_world(told, workload.ranks, ctx))
    faults = find_faults(training, told)
    tell_failure(faults, training, ctx)
    if workload.metrics:
        _report_printed(emitted, attempts[-1], workload.metrics, ctx)
    if not progress.useful and workload.metrics and not progress.lost:
        ctx.metadata(steps="none told: figures are what the program printed or emitted")
        return
    if not progress.useful:
        _no_steps(progress, attempts[-1], workload.patterns, ctx)
    steps = _report(progress, records, began_s, workload, ctx)
    report_ranks(steps, {rank.number: rank.node for rank in attempts[-1]}, ctx)
    record_profile(profiles, progress.useful, steps, ctx)
    report_reliability(faults, progress, (began_s, ended_s), training, ctx)
    check_cores(steps, attempts[-1], launch, workload.threads, ctx)
    place = RankPlacement(target.python, launch)
    report_spending(steps, target.price_per_hour, ctx)
    report_convergence(progress, began_s, workload, ctx)
    report_utilisation(steps, progress.world, workload, place, ctx)


# The metrics that a program prints are unknown at declaration.
train = replace(_train, strict_metrics=False)


def _report_printed(
    emitted: Sequence[Emitted], ranks: Sequence[RankProcess], metrics: Sequence[PrintedMetric], ctx: Context
) -> None:
    """Report the numbers that the scenario names, of the last attempt."""
    names = {metric.name for metric in metrics if metric.pattern is None}
    processes = [
        replace(item, lost=0, records=[{key: record[key] for key in names & record.keys()} for record in item.records])
        for item in emitted
    ]
    printed = PrintedValues(metrics, False, frozenset())
    printed.add("\n".join(line for rank in ranks for _, line in rank.lines).encode(), b"", processes)
    printed.report(1, ctx)


def _no_steps(
    progress: figures.StepProgress, ranks: Sequence[RankProcess], patterns: Mapping[str, str], ctx: Context
) -> None:
    if progress.lost:
        seen = sorted({step.rank for whole in progress.lost for step in whole.ranks})
        told = f"only of ranks {', '.join(map(str, seen))} of {progress.world}"
        ctx.fail(
            "no_steps", f"no step has a record of every rank: {told}; is the world that the program made as large?"
        )
    if unmatched := describe_unmatched(patterns, ranks):
        ctx.fail("no_steps", f"no record of a step was found: {unmatched}")
    ways = "emit({'step': ...}), print JSON lines with step, or give workload.patterns"
    ctx.fail("no_steps", f"no record of a step was found: {ways}; rank 0: {ranks[0].last_lines()[:_SHOWN]}")


def _report(
    progress: figures.StepProgress,
    records: Records,
    began_s: float,
    workload: TrainingWorkload,
    ctx: Context,
) -> Sequence[figures.WholeStep]:
    """Report the figures, and return the measured steps."""
    useful = progress.useful
    warmup = figures.find_warmup([step.took_s for step in useful], workload.warmup)
    steps = longest_untouched(useful[warmup.steps :], records.profiled)
    ctx.metadata(warmup_steps=warmup.steps, warmup_rule=warmup.why, measured_steps=len(steps), world=progress.world)
    if not steps:
        profiled = " or profiled" if records.profiled else ""
        ctx.fail("no_steps", f"all {len(useful)} steps are warm-up ({warmup.why}){profiled}; train longer")
    if figures.are_apart(steps):
        said = "ranks begin a step further apart than it takes: they do not wait for each other"
        ctx.warn("ranks_apart", f"{said}; is each of them a training of its own?")
    begin_s, end_s = figures.times_of(steps)
    ctx.phase(STEADY, int(begin_s * 1e9), int(end_s * 1e9))
    for step in steps:
        ctx.emit("step_time", step.took_s * 1e3)
        if any(rank.amounts.get("checkpoint_s") for rank in step.ranks):
            ctx.emit("checkpoint_time", max(rank.amounts.get("checkpoint_s", 0.0) for rank in step.ranks))
    numbers = {
        "tokens_per_s": figures.rate(steps, "tokens"),
        "samples_per_s": figures.rate(steps, "samples"),
        "data_share": figures.share(steps, "data_s"),
        "comm_share": figures.share(steps, "comm_s"),
        "cpu_share": figures.share(steps, "cpu_s"),
        "time_to_first_step": min(step.end_s for step in useful) - began_s,
        "loss": mean_loss(useful[-1]),
    }
    for name, number in numbers.items():
        if number is not None:
            ctx.emit(name, number)
    return steps
