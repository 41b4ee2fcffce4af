"""What the loss says: when it met a target, and a digest by which two trainings are seen to be the same. Pure."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from benchhouse.experiments.training.figures import WholeStep

SMOOTHED = 10
"""Steps whose mean loss must be at the target: a single lucky batch does not meet it."""


def mean_loss(step: WholeStep) -> float | None:
    """Of the ranks that tell one."""
    losses = [rank.amounts["loss"] for rank in step.ranks if "loss" in rank.amounts]
    return fsum(losses) / len(losses) if losses else None


@dataclass(frozen=True)
class Target:
    """Whether a target loss was met: the first step that ends `SMOOTHED` ones whose mean is at it or below."""

    step: int | None  # None: it never was
    end_s: float
    best: float | None
    """The lowest mean of that many steps; None where there are fewer."""


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
    """SHA-256 over number, rank and the exact bits of the loss, by step and rank; None where no step has one."""
    digest, some = hashlib.sha256(), False
    for step in steps:
        for rank in sorted(step.ranks, key=lambda each: each.rank):
            if "loss" in rank.amounts:
                digest.update(struct.pack("<qqd", step.number, rank.rank, rank.amounts["loss"]))
                some = True
    return digest.hexdigest() if some else None
