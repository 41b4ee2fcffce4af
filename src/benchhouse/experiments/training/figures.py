"""Compute figures of a training from the steps of all ranks. Pure.

A step takes as long as its slowest rank. Ranks wait for each other in every step, so the step takes equally long on all
of them: only the time that each spends not waiting shows which one is slow.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchhouse.analysis.changes import find_changes
from benchhouse.experiments.training.steps import TrainingStep

_FEWEST_STEPS, _SLOW_STEPS, _SLOW_SHARE, _SLOW_S = 10, 0.9, 0.1, 1e-3  # see straggler_of


@dataclass(frozen=True)
class WholeStep:
    """One step of all ranks."""

    number: int
    attempt: int
    ranks: Sequence[TrainingStep]

    @property
    def begin_s(self) -> float:
        return min(step.begin_s for step in self.ranks)

    @property
    def end_s(self) -> float:
        return max(step.end_s for step in self.ranks)

    @property
    def took_s(self) -> float:
        """Duration on the slowest rank."""
        return max(step.took_s for step in self.ranks)

    @property
    def apart_s(self) -> float:
        """Time from the first rank that begins the step to the last."""
        return max(step.begin_s for step in self.ranks) - self.begin_s

    def total(self, name: str) -> float | None:
        """Return the sum over the ranks that record the amount; None if no rank does."""
        amounts = [step.amounts[name] for step in self.ranks if name in step.amounts]
        return math.fsum(amounts) if amounts else None


@dataclass(frozen=True)
class StepProgress:
    """Which steps counted, and which work was lost."""

    useful: Sequence[WholeStep]
    """Steps by number, each once, as the last attempt did it."""
    lost: Sequence[WholeStep]
    """Steps that were done again later, or never by all ranks."""
    world: int

    @property
    def lost_s(self) -> float:
        return math.fsum(step.took_s for step in self.lost)


def progress_of(steps: Iterable[TrainingStep], world: int) -> StepProgress:
    """Split steps into useful and lost: a step counts if every rank did it, in the last attempt in which all did."""
    together: dict[tuple[int, int], dict[int, TrainingStep]] = {}
    for step in steps:
        together.setdefault((step.attempt, step.number), {})[step.rank] = step
    useful: dict[int, WholeStep] = {}
    lost: list[WholeStep] = []
    for (attempt, number), ranks in sorted(together.items()):
        whole = WholeStep(number, attempt, list(ranks.values()))
        if len(ranks) < world:
            lost.append(whole)
            continue
        if number in useful:
            lost.append(useful.pop(number))
        useful[number] = whole
    return StepProgress([useful[number] for number in sorted(useful)], lost, world)


@dataclass(frozen=True)
class Warmup:
    """How many of the first steps are not measured, and why."""

    steps: int
    why: str


def find_warmup(times_s: Sequence[float], asked: int | None) -> Warmup:
    """Return the requested warmup. Without one, it is the first step plus the steps before a change point in the first
    half at which the time per step falls."""
    if asked is not None:
        return Warmup(min(asked, len(times_s)), "as asked")
    if len(times_s) < 2:
        return Warmup(0, "a single step is all there is")
    history = find_changes(times_s[1:])
    first = history.changes[0] if history.changes else None
    if first and first.after < first.before and first.index + 1 <= len(times_s) // 2:
        count, falls = first.index + 1, 1.0 - first.after / first.before
        return Warmup(count, f"the time of a step falls by {falls:.0%} after {count} steps (change point)")
    return Warmup(1, "the first step; no change point in the first half of the others")


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for, step after step."""

    rank: int
    own_s: float
    others_s: float  # medians
    first: int
    last: int
    """Numbers of the first and last step in which it was slow."""

    def message(self, node: str) -> str:
        times = f"{self.own_s * 1e3:.4g} ms of its own in a step, the others {self.others_s * 1e3:.4g}"
        where = f" on {node}" if node else ""
        return f"rank {self.rank}{where} is slow in steps {self.first} to {self.last}: it needs {times}"


def straggler_of(steps: Sequence[WholeStep]) -> Straggler | None:
    """Return the rank whose own time exceeds the median of the others' by at least a tenth and 1 ms in nearly all
    steps.

    Own time is that of a step without `comm_s`; if a rank does not record it, the result is None. All steps, their
    second half, and their last quarter are searched, because a rank may become slow. The result is also None with fewer
    than 10 steps, or if the rank exceeds that bound in less than 90% of them: noise affects one rank now, then another.
    """
    for begin in (0, len(steps) // 2, len(steps) * 3 // 4):
        part = steps[begin:]
        if len(part) < _FEWEST_STEPS:
            break
        own = [{rank.rank: time for rank in whole.ranks if (time := own_s(rank)) is not None} for whole in part]
        if any(len(times) < max(2, len(whole.ranks)) for times, whole in zip(own, part, strict=True)):
            return None
        for rank in own[0]:
            pairs = [(times[rank], median(time for other, time in times.items() if other != rank)) for times in own]
            slow = sum(mine > others + max(_SLOW_SHARE * others, _SLOW_S) for mine, others in pairs)
            if slow >= _SLOW_STEPS * len(pairs):
                mine_s, others_s = (median(side) for side in zip(*pairs, strict=True))
                return Straggler(rank, mine_s, others_s, part[0].number, part[-1].number)
    return None


def own_s(step: TrainingStep) -> float | None:
    """Return the time of a step on one rank without its wait for the others; None if it has no `comm_s`."""
    return step.took_s - step.amounts["comm_s"] if "comm_s" in step.amounts else None


def share(steps: Sequence[WholeStep], name: str) -> float | None:
    """Return the share of step time that ranks spent on `name`; None if a step does not record it."""
    ranks = [step for whole in steps for step in whole.ranks]
    if not ranks or not all(name in step.amounts for step in ranks):
        return None
    return math.fsum(step.amounts[name] for step in ranks) / math.fsum(step.took_s for step in ranks)


def covered_s(steps: Iterable[WholeStep]) -> float:
    """Return the time in which at least one rank was in one of these steps."""
    total, until = 0.0, -math.inf
    for begin, end in sorted((step.begin_s, step.end_s) for step in steps):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def are_apart(steps: Sequence[WholeStep]) -> bool:
    """Return whether ranks begin a step further apart than it takes: then they do not wait for each other."""
    return median(step.apart_s for step in steps) > median(step.took_s for step in steps)


def rate(steps: Sequence[WholeStep], name: str) -> float | None:
    """Return the amount per second of all ranks, from the first beginning of these steps to the last end. None if there
    are no steps, or if one of them does not record the amount."""
    amounts = [whole.total(name) for whole in steps]
    if not steps or any(amount is None for amount in amounts):
        return None
    begin_s, end_s = times_of(steps)
    return math.fsum(amount for amount in amounts if amount is not None) / (end_s - begin_s)


def times_of(steps: Sequence[WholeStep]) -> tuple[float, float]:
    """Return the first beginning and the last end of the steps, whatever the order of their numbers."""
    return min(step.begin_s for step in steps), max(step.end_s for step in steps)
