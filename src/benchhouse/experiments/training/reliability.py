"""Divide the wall time of a training into parts, and compute what interrupts cost. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchhouse.experiments.training.figures import StepProgress, WholeStep

PARTS = {
    "useful": "a rank was at a step that counts",
    "checkpoint": "a checkpoint was written after such a step, and none was at a step",
    "startup": "from the start of the ranks to the beginning of their first step",
    "between": "between steps that count: what no record tells",
    "lost": "steps that were done again or not by all ranks, all between them, and from the last one to the fault",
    "detection": "from the fault, of a rank that hangs from its last step, until it was noticed",
    "restart": "from there to the beginning of the next first step",
    "exit": "from the end of the last step to the end of the ranks",
}
"""The parts of the wall time, which add up to it."""
_FOREIGN_S = 1.0  # a step further outside of the training has the times of another clock
_SURE = 0.95
Interval = tuple[float, float]


@dataclass(frozen=True)
class Interrupt:
    """An attempt that ended early; times are those of the clock of the steps."""

    attempt: int
    fault_s: float
    """When the rank ended; if it hangs, any time before the end of its last step."""
    noticed_s: float


@dataclass(frozen=True)
class Wall:
    """Seconds of each of `PARTS`, and for each interrupt those of its detection and of the restart after it."""

    total_s: float
    parts: dict[str, float]
    detections_s: list[float] = field(default_factory=list)
    restarts_s: list[float] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        return self.parts["useful"] / self.total_s

    @property
    def reliability(self) -> float:
        """The share of time that was not lost to interrupts."""
        return 1.0 - math.fsum(self.parts[name] for name in ("lost", "detection", "restart")) / self.total_s


def wall_of(progress: StepProgress, interrupts: Sequence[Interrupt], began_s: float, ended_s: float) -> Wall | None:
    """Divide the wall time. Return None if steps have the times of another clock than `began_s` and `ended_s`."""
    steps = [*progress.useful, *progress.lost]
    if any(step.begin_s < began_s - _FOREIGN_S or step.end_s > ended_s + _FOREIGN_S for step in steps):
        return None
    wall = Wall(ended_s - began_s, dict.fromkeys(PARTS, 0.0))
    faults = {interrupt.attempt: interrupt for interrupt in interrupts}
    last = max([*faults, *(step.attempt for step in steps)], default=0)
    from_s = began_s
    for attempt in range(last + 1):
        useful = [step for step in progress.useful if step.attempt == attempt]
        lost = [step for step in progress.lost if step.attempt == attempt]
        fault = faults.get(attempt)
        if fault is not None:
            until_s = fault.noticed_s
        elif attempt == last:
            until_s = ended_s
        else:  # its end is not recorded: take that of its last step
            until_s = max((_end_s(step) for step in (*useful, *lost)), default=from_s)
        until_s = min(max(until_s, from_s), ended_s)
        _add(wall, (from_s, until_s), useful, lost, fault, opening="restart" if attempt else "startup")
        from_s = until_s
    wall.parts["exit"] += ended_s - from_s
    return wall


def _add(
    wall: Wall,
    window: Interval,
    useful: Sequence[WholeStep],
    lost: Sequence[WholeStep],
    fault: Interrupt | None,
    opening: str,
) -> None:
    """Add the parts of one attempt; `opening` is the name of the time before its first step."""

    def inside(moment_s: float, earliest_s: float = window[0]) -> float:
        return min(max(moment_s, earliest_s), window[1])

    parts, steps = wall.parts, (*useful, *lost)
    last_s = max((inside(_end_s(step)) for step in steps), default=window[0])
    fault_s = window[1] if fault is None else inside(fault.fault_s, last_s)
    first_s = min((inside(step.begin_s) for step in steps), default=fault_s)
    parts[opening] += first_s - window[0]
    if opening == "restart":
        wall.restarts_s.append(first_s - window[0])
    if fault is not None:
        parts["detection"] += window[1] - fault_s
        wall.detections_s.append(window[1] - fault_s)
    if not steps:
        return
    parts["lost" if fault is not None else "exit"] += fault_s - last_s
    counts = [(step.begin_s, step.end_s) for step in useful]
    writes = [(step.end_s, _end_s(step)) for step in useful]
    wasted = [(step.begin_s, _end_s(step)) for step in lost]
    useful_s, saved_s, all_s = (
        _covered(group, (first_s, last_s)) for group in (counts, counts + writes, counts + writes + wasted)
    )
    counted_until_s = max((inside(_end_s(step)) for step in useful), default=first_s)
    tail = (counted_until_s, last_s)
    lost_gaps_s = tail[1] - tail[0] - _covered(counts + writes + wasted, tail)
    parts["useful"] += useful_s
    parts["checkpoint"] += saved_s - useful_s
    parts["lost"] += all_s - saved_s + lost_gaps_s
    parts["between"] += (last_s - first_s) - all_s - lost_gaps_s


def _end_s(step: WholeStep) -> float:
    """Return the end of the step and of the checkpoint that was written after it."""
    return max(rank.end_s + rank.amounts.get("checkpoint_s", 0.0) for rank in step.ranks)


def _covered(intervals: Iterable[Interval], window: Interval) -> float:
    """Return the seconds of the window that at least one interval covers."""
    total, until_s = 0.0, window[0]
    for begin_s, end_s in sorted(intervals):
        end_s = min(end_s, window[1])
        total += max(0.0, end_s - max(begin_s, until_s))
        until_s = max(until_s, end_s)
    return total


def interrupt_interval(total_s: float, interrupts: int) -> tuple[float, float]:
    """Return the 95% interval of the mean time to an interrupt, if interrupts are independent at a constant rate."""
    tail = (1.0 - _SURE) / (2 if interrupts else 1)
    most = _solve(lambda mean: _at_most(interrupts, mean) - tail)
    least = _solve(lambda mean: tail - (1.0 - _at_most(interrupts - 1, mean))) if interrupts else 0.0
    return total_s / most, total_s / least if least else math.inf


def _at_most(count: int, mean: float) -> float:
    """Return the Poisson probability of `count` events or fewer."""
    return math.fsum(math.exp(number * math.log(mean) - mean - math.lgamma(number + 1)) for number in range(count + 1))


def _solve(falling: Callable[[float], float]) -> float:
    """Return the zero of a falling function."""
    low, high = 1e-9, 1e4
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low
