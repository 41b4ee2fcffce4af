"""Efficiency of a training: MFU and HFU, energy and cost per token, memory, and the course of the loss."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from benchhouse.experiments.training import figures
from benchhouse.experiments.training.convergence import SMOOTHED, loss_digest, mean_loss, meets_target
from benchhouse.experiments.training.figures import StepProgress, WholeStep
from benchhouse.experiments.training.flops import ModelFlops, achieved
from benchhouse.experiments.training.launchers import Launch
from benchhouse.experiments.training.peak import NotMeasured, Peak, measure_peak, python_of
from benchhouse.load.metrics import higher, lower
from benchhouse.schema.experiment import Context
from benchhouse.schema.model import Model

EFFICIENCY = (
    higher("mfu", "1", "model FLOPs a second of all ranks (workload.flops) / peak of all their devices"),
    higher("hfu", "1", "as mfu, with the FLOPs that the backward pass computes a second time"),
    lower(
        "energy_per_token",
        "J/token",
        "energy of GPUs and processors that the monitors read / tokens, over the measured steps",
    ),
    lower("memory_mb", "MB", "memory_bytes of the rank that had the most, in any measured step"),
    lower("cost_per_million_tokens", "$", "target.price_per_hour / tokens an hour x 10^6, over the measured steps"),
    lower(
        "time_to_train", "s", "from the start of the ranks to the end of the last step; without workload.target_loss"
    ),
    lower(
        "time_to_target",
        "s",
        f"from the start of the ranks to the end of the first {SMOOTHED} steps in a row whose mean loss is at "
        "workload.target_loss or below",
    ),
    lower("steps_to_target", "1", "number of the last of these steps, counted from 1"),
    lower("loss_at", "1", "loss of a step that workload.loss_at names, mean of the ranks; window `step:N`"),
)


class Goals(Model):
    """Goals against which the speed and the loss of a training are reported."""

    flops: ModelFlops | None = Field(
        None, description="FLOPs of training on a token, for MFU; by default what the records count as `flops`."
    )
    peak: Peak | None = Field(None, description="Most FLOPs a second of a device; without it there is no MFU.")
    target_loss: float | None = Field(
        None, description=f"Loss to be met by the mean of {SMOOTHED} steps in a row; the training goes on after it."
    )
    loss_at: list[int] = Field(
        default_factory=list, max_length=100, description="Numbers of steps whose loss is reported."
    )


@dataclass(frozen=True)
class RankPlacement:
    """Placement of the ranks, for the measurement of the peak."""

    python: str  # as configured; empty: that of the program
    launch: Launch


def report_utilisation(
    steps: Sequence[WholeStep], world: int, goals: Goals, place: RankPlacement, ctx: Context
) -> None:
    """Report MFU and HFU, with everything that they depend on in the metadata."""
    if goals.peak is None:
        if goals.flops:
            ctx.warn("no_peak", "workload.flops alone gives no MFU: give workload.peak, as {measure: true}")
        return
    work = achieved(steps, goals.flops)
    about = {
        "formula": work.formula,
        "causal": bool(goals.flops and goals.flops.causal),
        "recompute": goals.flops.recompute if goals.flops else None,
        "flops_per_token": goals.flops.a_token if goals.flops else None,
        "model_flops_per_s": work.model,
        "counted_flops_per_s": figures.rate(steps, "flops"),
        "dtype": goals.peak.dtype,
    }
    if work.why:
        ctx.warn("no_mfu", work.why)
    peak, source = goals.peak.given or (None, "")
    about |= {"peak_given": peak, "peak_given_by": source or None}
    if goals.peak.measure:
        try:
            measured = measure_peak(_python(place), goals.peak, place.launch)
        except NotMeasured as problem:
            ctx.warn("peak_not_measured", str(problem))
            if goals.peak.uses_measured:
                peak = None
        else:
            about |= {"peak_measured": measured.mean, "peak_measured_by": measured.ranks}
            if goals.peak.uses_measured:
                peak, source = measured.mean, "measured"
    ctx.metadata(utilisation={**about, "peak": peak, "peak_source": source if peak else None})
    for name, rate in (("mfu", work.model), ("hfu", work.hardware)):
        if rate is not None and peak is not None:
            share = rate / (peak * world)
            ctx.emit(name, share)
            if share > 1:
                ctx.warn("above_the_peak", f"{name} is {share:.2f}: the peak is too low, or the FLOPs are too many")


def _python(place: RankPlacement) -> str:
    launch = place.launch
    found = place.python or python_of(launch.argv, launch.environment.get("PATH", ""))
    if not found:
        raise NotMeasured(f"which Python has torch, {launch.argv[0]!r} does not tell: give target.python")
    return found


def report_spending(steps: Sequence[WholeStep], price_per_hour: float | None, ctx: Context) -> None:
    """Report memory, energy, and cost, each only if it is known, and per token only if tokens are recorded."""
    held = [rank.amounts["memory_bytes"] for step in steps for rank in step.ranks if "memory_bytes" in rank.amounts]
    if held:
        ctx.emit("memory_mb", max(held) / 1e6)
    tokens_per_s = figures.rate(steps, "tokens")
    if not tokens_per_s:
        return
    begin_s, end_s = figures.times_of(steps)
    ctx.energy_per("energy_per_token", tokens_per_s * (end_s - begin_s))
    if price_per_hour is not None:
        ctx.emit("cost_per_million_tokens", price_per_hour / 3600 / tokens_per_s * 1e6)


def report_convergence(progress: StepProgress, began_s: float, goals: Goals, ctx: Context) -> None:
    """Report the loss over all steps that count: a training is judged from its start, including warm-up."""
    useful = progress.useful
    if digest := loss_digest(useful):
        ctx.metadata(loss_digest=digest)
    for number in goals.loss_at:
        step = next((step for step in useful if step.number == number), None)
        loss = mean_loss(step) if step else None
        if loss is None:
            ctx.warn("no_loss_at", f"no step {number} with a loss is among the {len(useful)} that count")
        else:
            ctx.emit("loss_at", loss, window=f"step:{number}")
    if goals.target_loss is None:
        ctx.emit("time_to_train", figures.times_of(useful)[1] - began_s)
        return
    target = meets_target(useful, goals.target_loss)
    if target.step is not None:
        ctx.emit("time_to_target", target.end_s - began_s)
        ctx.emit("steps_to_target", sum(step.number <= target.step for step in useful))
        return
    best = f"the best mean of {SMOOTHED} was {target.best:.6g}" if target.best is not None else "too few tell a loss"
    ctx.warn("target_not_reached", f"loss {goals.target_loss:g} was not met in {len(useful)} steps: {best}")
