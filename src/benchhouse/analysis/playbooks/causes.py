"""Causes and the clues that speak for them; which of several has the best evidence."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchhouse.analysis.playbooks.counting import SURE_P, Slowness, find_hits
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

    def ask(self, signal: Signal, slowness: Slowness = ()) -> Evidence | None:
        """What the signal shows: a mean that moved, else, in the trials that were slow, a fault that came and went."""
        moved = find_shift(signal, self.way, self.least, self.ratio, self.stat, self.normal)
        return moved or find_hits(signal, self.way, self.least, self.ratio, self.stat, slowness)


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
    both: bool = field(default=False)  # whether every clue is needed, not just one


@dataclass(frozen=True)
class Weighed:
    """A cause with its evidence; `strength` is the largest shift as a multiple of what matters."""

    cause: Cause
    evidence: list[Evidence]
    strength: float


def weigh(causes: Iterable[Cause], signals: Sequence[Signal], slowness: Slowness = ()) -> list[Weighed]:
    """The causes that have evidence: roots before what follows from them, then the strongest first.

    With the `slowness` of the run's trials, signals that come and go count as well.
    """
    found = []
    for cause in causes:
        shown: list[Evidence] = []
        strength, met = 0.0, 0
        for clue in cause.clues:
            moved = [one for signal in signals if clue.fits(signal) and (one := clue.ask(signal, slowness))]
            met += bool(moved)
            for one in moved:
                now = one.now[: one.hits]
                size = abs(sum(now) / len(now) - sum(one.base) / len(one.base))
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
        next=[*_more_trials(best.evidence), *best.cause.next],
        change=best.cause.change,
        also=[f"{one.cause.title}: {one.evidence[0].says}" for one in weighed[1:]],
    )


def _more_trials(evidence: Sequence[Evidence]) -> list[str]:
    """What comes and goes is surest told by more trials; twice as many make it moderate."""
    if not all(one.hits for one in evidence):
        return []
    trials = 2 * max(len(one.now) for one in evidence)
    return [
        f"Run this and the good one again with `repetitions: {trials}`, for it comes and goes: bench run {{scenario}}"
    ]


def how_sure(evidence: Sequence[Evidence]) -> tuple[Certainty, str]:
    """In words: by how many signals agree, how far they moved, and how many repetitions there are."""
    trials = min(len(one.now) if one.against == "peers" else min(len(one.base), len(one.now)) for one in evidence)
    series = len({one.series for one in evidence})
    farthest = max(one.distance for one in evidence)
    counted = [one for one in evidence if one.hits is not None and one.p_value is not None]
    if len(counted) == len(evidence):
        return _how_sure_by_count(counted, series)
    told = f"{series} series moved, the farthest by {farthest:.0f} spreads, in {trials} trials a side"
    if all(one.against == "normal" for one in evidence):
        return "weak", f"{told}; the base has none of them to compare with"
    if farthest >= _SURE_DISTANCE and trials >= _SURE_TRIALS:
        return "strong", told
    return ("moderate", told) if trials >= _SURE_TRIALS or series > 1 else ("weak", f"{told}: few")


def _how_sure_by_count(evidence: Sequence[Evidence], series: int) -> tuple[Certainty, str]:
    """Of what comes and goes: never strong, for trials are only counted, and the others of the run are as the base."""
    best = min(evidence, key=lambda one: one.p_value or 0.0)
    seen = f"seen in {best.hits} of {len(best.now)} trials"
    told = f"{series} series came and went, {seen}; chance alone does that in {best.p_value:.1%} of such pairs of runs"
    return ("moderate" if best.p_value is not None and best.p_value <= SURE_P else "weak"), told


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
