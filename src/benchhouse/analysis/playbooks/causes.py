"""Causes and the clues that speak for them; which of several has the best evidence."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchhouse.analysis.playbooks.moving import Stat, Way, find_shift, tell, unit_words
from benchhouse.analysis.playbooks.values import Case, Certainty, Diagnosis, Evidence, Number, Side, Signal

_SURE_DISTANCE = 8.0
_SURE_TRIALS = 5
_MOST_EVIDENCE = 4
_LARGEST_STRENGTH = 50.0


@dataclass(frozen=True)
class Clue:
    """A series that speaks for a cause when it moved this way by at least so much.

    `least` is in the unit of the series as it is told (of a counter, growth a second), so shares of time can be weighed
    against each other; `normal` is what a healthy machine reads, where the base has no such series.
    """

    series: str
    way: Way = "up"
    least: float = 0.02
    ratio: float = 0.5
    scope: str = ""
    stat: Stat = "avg"
    normal: float | None = None

    def fits(self, signal: Signal) -> bool:
        return bool(re.fullmatch(self.series, signal.series)) and bool(
            not self.scope or re.fullmatch(self.scope, signal.scope)
        )


@dataclass(frozen=True)
class Cause:
    """One answer of a playbook. Of a chain of causes the one with the least `depth` is the root."""

    name: str
    title: str
    says: str
    side: Side
    clues: tuple[Clue, ...]
    next: tuple[str, ...]
    change: str
    depth: int = 0
    both: bool = field(default=False)
    """Whether every clue is needed, not just one."""


@dataclass(frozen=True)
class Weighed:
    """A cause with its evidence; `strength` is the largest shift as a multiple of what matters."""

    cause: Cause
    evidence: list[Evidence]
    strength: float


def weigh(causes: Iterable[Cause], signals: Sequence[Signal]) -> list[Weighed]:
    """The causes that have evidence: roots before what follows from them, then the strongest first."""
    found = []
    for cause in causes:
        shown: list[Evidence] = []
        strength, met = 0.0, 0
        for clue in cause.clues:
            moved = [
                (one, clue)
                for signal in signals
                if clue.fits(signal)
                and (one := find_shift(signal, clue.way, clue.least, clue.ratio, clue.stat, clue.normal))
            ]
            met += bool(moved)
            for one, _ in moved:
                size = abs(sum(one.now) / len(one.now) - sum(one.base) / len(one.base))
                strength = max(strength, min(size / clue.least, _LARGEST_STRENGTH) if clue.least else one.distance)
                shown.append(one)
        if shown and (not cause.both or met == len(cause.clues)):
            ordered = sorted(shown, key=lambda one: -one.distance)
            found.append(Weighed(cause, ordered[:_MOST_EVIDENCE], strength))
    return sorted(found, key=lambda one: (one.cause.depth, -one.strength, one.cause.name))


def conclude(
    case: Case, playbook: str, weighed: Sequence[Weighed], symptoms: Sequence[Number], first: Sequence[Evidence] = ()
) -> Diagnosis:
    """The first of the weighed causes as a diagnosis; `first` is evidence that all causes of the playbook share."""
    best = weighed[0]
    certainty, reason = how_sure(best.evidence)
    return Diagnosis(
        playbook=playbook,
        cause=best.cause.name,
        title=best.cause.title,
        says=best.cause.says,
        certainty=certainty,
        why_so_sure=reason,
        side=best.cause.side,
        point=case.point,
        symptoms=[symptom_words(one) for one in symptoms],
        evidence=[*first, *best.evidence],
        next=list(best.cause.next),
        change=best.cause.change,
        also=[f"{one.cause.title}: {one.evidence[0].says}" for one in weighed[1:]],
    )


def how_sure(evidence: Sequence[Evidence]) -> tuple[Certainty, str]:
    """In words: by how many signals agree, how far they moved, and how many repetitions there are."""
    trials = min(len(one.now) if one.against == "peers" else min(len(one.base), len(one.now)) for one in evidence)
    series = len({one.series for one in evidence})
    farthest = max(one.distance for one in evidence)
    told = f"{series} series moved, the farthest by {farthest:.0f} spreads, in {trials} trials a side"
    if all(one.against == "normal" for one in evidence):
        return "weak", f"{told}; the base has none of them to compare with"
    if farthest >= _SURE_DISTANCE and trials >= _SURE_TRIALS:
        return "strong", told
    return ("moderate", told) if trials >= _SURE_TRIALS or series > 1 else ("weak", f"{told}: few")


def symptom_words(number: Number) -> str:
    """`latency p99: 20.1 -> 41.3 ms (+105%, 95% interval +98% to +112%)`."""
    told = f"{number.name}: {tell(number.base)} -> {tell(number.now)} {unit_words(number.unit)}".rstrip()
    if number.change is None:
        return told
    ends = (
        f", 95% interval {number.low:+.0%} to {number.high:+.0%}"
        if number.low is not None and number.high is not None
        else ""
    )
    return f"{told} ({number.change:+.0%}{ends})"
