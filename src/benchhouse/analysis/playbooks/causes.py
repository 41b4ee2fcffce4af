"""Causes and the clues that support them, and the selection of the cause with the best evidence."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchhouse.analysis.playbooks.signals import SURE_P, Slowness, Stat, Way, figure, find_hits, find_shift, with_unit
from benchhouse.analysis.playbooks.values import (
    Certainty,
    ComparedNumber,
    ComparedPoint,
    PointDiagnosis,
    Side,
    Signal,
    SignalEvidence,
)

_SURE_DISTANCE = 8.0
_SURE_TRIALS = 5
_MOST_EVIDENCE = 4
_LARGEST_STRENGTH = 50.0


@dataclass(frozen=True)
class Clue:
    """A series that supports a cause if it moved this way by at least this much.

    `least` is in the unit of the readings (for a counter, growth per second), so that shares of time can be weighed
    against each other; `normal` is the reading of a healthy machine, used if the base has no such series.
    """

    series: str
    way: Way = "up"
    least: float = 0.02
    ratio: float = 0.5
    scope: str = ""
    stat: Stat = "avg"
    normal: float | None = None

    def fits(self, signal: Signal) -> bool:
        return self.fits_name(signal.scope, signal.series)

    def fits_name(self, scope: str, series: str) -> bool:
        return bool(re.fullmatch(self.series, series) and re.fullmatch(self.scope or ".*", scope))

    def ask(self, signal: Signal, slowness: Slowness = ()) -> SignalEvidence | None:
        """Return the evidence in a signal: a mean that moved, otherwise an intermittent fault in the slow trials. None
        if neither.
        """
        moved = find_shift(signal, self.way, self.least, self.ratio, self.stat, self.normal)
        return moved or find_hits(signal, self.way, self.least, self.ratio, self.stat, slowness)


@dataclass(frozen=True)
class Cause:
    """One possible result of a playbook. In a chain of causes, the one with the smallest `depth` is the root."""

    name: str
    title: str
    says: str
    side: Side
    clues: tuple[Clue, ...]
    next: tuple[str, ...]
    change: str
    depth: int = 0
    both: bool = False  # whether all clues are needed, not just one


@dataclass(frozen=True)
class ScoredCause:
    """A cause with its evidence; `strength` is the largest shift as a multiple of the clue's `least`."""

    cause: Cause
    evidence: list[SignalEvidence]
    strength: float


def weigh(causes: Iterable[Cause], signals: Sequence[Signal], slowness: Slowness = ()) -> list[ScoredCause]:
    """Return the causes that have evidence: roots before their consequences, then the strongest first.

    With the `slowness` of the run's trials, intermittent signals count as well.
    """
    weighed = []
    for cause in causes:
        shown: list[SignalEvidence] = []
        strength, met = 0.0, 0
        for clue in cause.clues:
            moved = [evidence for signal in signals if clue.fits(signal) and (evidence := clue.ask(signal, slowness))]
            met += bool(moved)
            shown += moved
            for evidence in moved:
                now = evidence.now[: evidence.hits]
                size = abs(sum(now) / len(now) - sum(evidence.base) / len(evidence.base))
                part = min(size / clue.least, _LARGEST_STRENGTH) if clue.least else evidence.distance
                strength = max(strength, part)
        if shown and (not cause.both or met == len(cause.clues)):
            shown.sort(key=lambda evidence: -evidence.distance)
            weighed.append(ScoredCause(cause, shown[:_MOST_EVIDENCE], strength))
    return sorted(weighed, key=lambda item: (item.cause.depth, -item.strength, item.cause.name))


def conclude(
    case: ComparedPoint,
    playbook: str,
    weighed: Sequence[ScoredCause],
    symptoms: Sequence[ComparedNumber],
    first: Sequence[SignalEvidence] = (),
) -> PointDiagnosis:
    """Return the first of the weighed causes as a diagnosis; `first` is evidence that all causes of the
    playbook share.
    """
    best = weighed[0]
    certainty, reason = how_sure(best.evidence)
    steps = list(best.cause.next)
    if all(item.hits for item in best.evidence):  # intermittent; twice as many trials make it moderate
        trials = 2 * max(len(item.now) for item in best.evidence)
        again = f"Run this and the good one again with `repetitions: {trials}`, for it comes and goes"
        steps.insert(0, f"{again}: bench run {{scenario}}")
    return PointDiagnosis(
        playbook=playbook,
        cause=best.cause.name,
        title=best.cause.title,
        says=best.cause.says,
        certainty=certainty,
        why_so_sure=reason,
        side=best.cause.side,
        point=case.point,
        symptoms=[symptom_sentence(number) for number in symptoms],
        evidence=[*first, *best.evidence],
        next=steps,
        change=best.cause.change,
        also=[f"{other.cause.title}: {other.evidence[0].says}" for other in weighed[1:]],
    )


def how_sure(evidence: Sequence[SignalEvidence]) -> tuple[Certainty, str]:
    """Return the certainty and its reason: how many signals agree, how far they moved, and how many repetitions there
    are.
    """
    trials = min(len(item.now) if item.against == "peers" else min(len(item.base), len(item.now)) for item in evidence)
    series = len({item.series for item in evidence})
    farthest = max(item.distance for item in evidence)
    counted = [(item.p_value, item) for item in evidence if item.hits is not None and item.p_value is not None]
    # never strong: trials are only counted, and the others are like the base
    if len(counted) == len(evidence):
        p, best = min(counted, key=lambda pair: pair[0])
        seen = f"{series} series came and went, seen in {best.hits} of {len(best.now)} trials"
        reason = f"{seen}; chance alone does that in {p:.1%} of such pairs of runs"
        return ("moderate" if p <= SURE_P else "weak"), reason
    reason = f"{series} series moved, the farthest by {farthest:.0f} spreads, in {trials} trials a side"
    if all(item.against == "normal" for item in evidence):
        return "weak", f"{reason}; the base has none of them to compare with"
    if farthest >= _SURE_DISTANCE and trials >= _SURE_TRIALS:
        return "strong", reason
    return ("moderate", reason) if trials >= _SURE_TRIALS or series > 1 else ("weak", f"{reason}: few")


def symptom_sentence(number: ComparedNumber) -> str:
    """Return text such as `latency p99: 20.1 -> 41.3 ms (+105%, 95% interval +98% to +112%)`."""
    unit = with_unit(number.unit)
    levels = f"{number.name}: {figure(number.base)} -> {figure(number.now)} {unit}".rstrip()
    if number.change is None:
        return levels
    known = number.low is not None and number.high is not None
    ends = f", 95% interval {number.low:+.0%} to {number.high:+.0%}" if known else ""
    return f"{levels} ({number.change:+.0%}{ends})"
