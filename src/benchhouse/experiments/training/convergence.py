"""The loss of a training: when it met a target, and a digest that shows whether two trainings are the same. Pure."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from benchhouse.experiments.training.figures import WholeStep

SMOOTHED = 10
"""Number of steps whose mean loss must be at the target: a single lucky batch does not meet it."""


def mean_loss(step: WholeStep) -> float | None:
    """Return the mean over the ranks that record a loss; None if no rank does."""
    losses = [rank.amounts["loss"] for rank in step.ranks if "loss" in rank.amounts]
    return fsum(losses) / len(losses) if losses else None


@dataclass(frozen=True)
class Target:
    """The first step at which the mean loss of the last `SMOOTHED` steps met a target, if there was one."""

    step: int | None  # None: the target was not met
    end_s: float
    best: float | None
    """The lowest mean of that many steps; None if there are fewer steps."""


def meets_target(steps: Sequence[WholeStep], target: float) -> Target:
    known = [(step, loss) for step in steps if (loss := mean_loss(step)) is not None]
    best: float | None = None
    for at in range(SMOOTHED, len(known) + 1):
        smoothed = fsum(loss for _, loss in known[at - SMOOTHED : at]) / SMOOTHED
        best = smoothed if best is None else min(best, smoothed)
        if smoothed <= target:
            last = known[at - 1][0]
            return Target(last.number, last.end_s, smoothed)
    return Target(None, 0.0, best)


def loss_digest(steps: Iterable[WholeStep]) -> str | None:
    """Return the SHA-256 of step number, rank, and exact bits of each loss, in this order; None without a loss."""
    digest, some = hashlib.sha256(), False
    for step in steps:
        for rank in sorted(step.ranks, key=lambda each: each.rank):
            if "loss" in rank.amounts:
                digest.update(struct.pack("<qqd", step.number, rank.rank, rank.amounts["loss"]))
                some = True
    return digest.hexdigest() if some else None
