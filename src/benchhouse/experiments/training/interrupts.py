"""Interrupts of a training and their cost, as metrics, metadata, and warnings, or as the trial's failure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from benchhouse.experiments.training.faults import CODES, Fault, FaultEvidence, diagnose
from benchhouse.experiments.training.figures import StepProgress
from benchhouse.experiments.training.launch import RankProcess, Training
from benchhouse.experiments.training.rank import node_of_rank
from benchhouse.experiments.training.reliability import PARTS, Interrupt, interrupt_interval, wall_of
from benchhouse.experiments.training.steps import TrainingStep
from benchhouse.load.metrics import higher, lower
from benchhouse.schema.experiment import Context

METRICS = (
    higher("goodput", "1", "time at steps that count / wall time, from the start of the ranks to their end"),
    higher("reliability", "1", "share of the wall time that is not lost work, detection or restart"),
    higher("mtti", "s", "wall time / interrupts; only where there was one"),
    lower("lost_time", "s", f"all {PARTS['lost']}"),
    lower("detection_time", "s", f"of each interrupt, {PARTS['detection']}"),
    lower("restart_time", "s", f"of each restart, {PARTS['restart'].replace('there', 'when the fault was noticed')}"),
    lower("restarts", "1", "how often the ranks had to begin again"),
    lower("lost_steps", "1", "steps that were done again later, or not by all ranks"),
)


@dataclass(frozen=True)
class ReportedFault:
    """A fault and the attempt that it ended."""

    attempt: int
    fault: Fault
    noticed_s: float | None

    @property
    def interrupt(self) -> Interrupt | None:
        moment_s = -math.inf if self.fault.moment_s is None else self.fault.moment_s
        return None if self.noticed_s is None else Interrupt(self.attempt, moment_s, self.noticed_s)


def find_faults(training: Training, steps: Sequence[TrainingStep]) -> list[ReportedFault]:
    """Return the fault of every attempt that failed."""
    faults, here = [], node_of_rank()
    for attempt, ranks in enumerate(training.attempts):
        if any(rank.exit_code != 0 for rank in ranks):
            last: dict[int, int] = {}
            for step in steps:
                if step.attempt == attempt:
                    last[step.rank] = max(step.number, last.get(step.rank, step.number))
            timed_out = training.timed_out and attempt == len(training.attempts) - 1
            fault, ours = diagnose(FaultEvidence(ranks, last, timed_out)), [rank for rank in ranks if rank.node == here]
            if not {rank.number for rank in ours}.issuperset(fault.ranks):
                fault = replace(fault, moment_s=None)  # from another node's clock
            faults.append(ReportedFault(attempt, fault, _noticed_s(ours)))
    return faults


def _noticed_s(ranks: Sequence[RankProcess]) -> float | None:
    """Return when the first other rank was told to end; for a single rank, when it ended."""
    told = [rank.facts["told_to_end_s"] for rank in ranks if "told_to_end_s" in rank.facts]
    ended = [rank.ended_s for rank in ranks if rank.ended_s is not None]
    return min(told) if told else max(ended, default=None)


def tell_failure(faults: Sequence[ReportedFault], training: Training, ctx: Context) -> None:
    """Fail the trial with the fault that ended the last attempt; only warn of a rank that hung at exit."""
    here = node_of_rank()
    for ranks in training.attempts[:-1]:  # ranks of this node share a cgroup: the last one to end has seen all kills
        ctx.overcame_oom_kills(max((rank.facts.get("oom_kills", 0) for rank in ranks if rank.node == here), default=0))
    if not faults or faults[-1].attempt < len(training.attempts) - 1:
        return
    fault = faults[-1].fault
    if fault.kind == "hung_at_exit":
        ctx.warn(CODES[fault.kind], f"{fault.message}; it was ended, and its time is in exit")
        return
    before = training.attempts[:-1]
    tried = f" (after {len(before)} restarts)" if before else ""
    if before and " before the first step" in fault.message:
        tried += "; is what it begins again from, such as a checkpoint, whole?"
    ctx.fail(CODES[fault.kind], f"{fault.message}{tried}", retryable=fault.kind == "node")


def report_reliability(
    faults: Sequence[ReportedFault],
    progress: StepProgress,
    times_s: tuple[float, float],
    training: Training,
    ctx: Context,
) -> None:
    ended_early = [told for told in faults if told.fault.kind != "hung_at_exit"]
    ctx.emit("restarts", float(len(training.attempts) - 1))
    ctx.emit("lost_steps", float(len(progress.lost)))
    for told in ended_early:
        ctx.warn("interrupted", f"attempt {told.attempt + 1}: {told.fault.message}")
    if ended_early:
        ctx.metadata(interrupts=[{"attempt": told.attempt, **asdict(told.fault)} for told in ended_early])
    _report_early_ranks(progress, ctx)
    interrupts = [told.interrupt for told in ended_early]
    wall = wall_of(progress, [item for item in interrupts if item is not None], *times_s)
    if wall is None:
        ctx.warn(
            "steps_of_another_clock",
            "steps were told at times outside of the training: no goodput; use time.monotonic() for t_start and t_end",
        )
        return
    ctx.metadata(wall_s=wall.total_s, wall_parts_s=wall.parts)
    figures = {"goodput": wall.goodput, "reliability": wall.reliability, "lost_time": wall.parts["lost"]}
    for name, value in figures.items():
        ctx.emit(name, value)
    for seconds in wall.detections_s:
        ctx.emit("detection_time", seconds)
    for seconds in wall.restarts_s:
        ctx.emit("restart_time", seconds)
    count = len(ended_early)
    shortest_s, longest_s = interrupt_interval(wall.total_s, count)
    if count:
        ctx.emit("mtti", wall.total_s / count)
        ctx.metadata(mtti_interval_s=[shortest_s, longest_s], mtti_level=0.95, interrupted=count)
    else:
        ctx.metadata(mtti_at_least_s=shortest_s, mtti_level=0.95, interrupted=0)


def _report_early_ranks(progress: StepProgress, ctx: Context) -> None:
    """Warn about ranks whose last recorded step is earlier than that of the others, although all ended well."""
    last: dict[int, int] = {}
    for whole in (*progress.useful, *progress.lost):
        for step in whole.ranks:
            last[step.rank] = max(whole.number, last.get(step.rank, whole.number))
    most = max(last.values(), default=0)
    left: Mapping[int, int] = {rank: number for rank, number in last.items() if number < most}
    if left and len(last) > 1:
        listed = ", ".join(f"rank {rank} after step {number}" for rank, number in sorted(left.items()))
        ctx.warn("rank_left", f"{listed} told no more, while others went on to {most}: those steps count as lost")
