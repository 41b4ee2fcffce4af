"""Rank targets by one metric: whoever is surely better stands higher, and whom the data don't tell apart share a rank.

One value is one trial. `docs/design/leaderboards.md` says why ranks are counted this way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from benchhouse.analysis.compare import CONFIDENCE, SMALLEST_RESAMPLED, Comparison, Pair, compare_many
from benchhouse.analysis.compare import p_value as welch_p
from benchhouse.analysis.ranking import holm
from benchhouse.analysis.summary import Summary, summarise

SEED = 20_240_229  # of the resamples; fixed, so that the same numbers always give the same intervals
FEW = SMALLEST_RESAMPLED
Direction = Literal["higher", "lower"]
Verdict = Literal["best", "tied for best", "worse than the best", "not told from the best", "too few repetitions"]


@dataclass(frozen=True, slots=True)
class Standing:
    """One target on one board."""

    target: str
    rank: int | None  # 1 and how many targets are surely better; None where there are too few repetitions to say
    summary: Summary
    against_best: Comparison | None  # None for the best itself, and where no target has repetitions
    better: tuple[str, ...]  # the targets that are surely better, after correction for many comparisons
    verdict: Verdict


def rank_targets(
    values: Mapping[str, Sequence[float]], direction: Direction, confidence: float = CONFIDENCE
) -> list[Standing]:
    """Standings, best mean first. Raises ValueError for a target without values, NaN or infinity.

    All pairs are tested and corrected for, as a reader compares whom he likes. Surely worse is who is so by the
    corrected p-value and by the interval: the two may differ at the edge, and a board must not contradict itself.
    """
    summaries = {name: summarise(sample) for name, sample in values.items()}
    order = sorted(summaries, key=lambda name: summaries[name].mean, reverse=direction == "higher")
    repeated = [name for name in order if summaries[name].n > 1]
    better = _surely_better(values, repeated, direction, confidence)
    best = repeated[0] if repeated else None
    others = [name for name in order if name != best] if best else []
    compared = compare_many(
        [Pair(values[best or ""], values[name], direction) for name in others], seed=SEED, confidence=confidence
    )
    beside = dict(zip(others, compared, strict=True))
    ranks = {name: 1 + len(better[name]) for name in repeated}
    return [
        Standing(
            target=name,
            rank=ranks.get(name),
            summary=summaries[name],
            against_best=beside.get(name),
            better=tuple(better.get(name, ())),
            verdict=_verdict(name, best, ranks, better),
        )
        for name in order
    ]


def sentence(standings: Sequence[Standing]) -> str:
    """Who leads and how sure that is, in one line."""
    ranked = [item for item in standings if item.rank is not None]
    if not ranked:
        return "No target has two trials, so how sure the order is can't be said."
    first = [item.target for item in ranked if item.rank == 1]
    if len(ranked) == 1:
        return f"{first[0]} is the only target with repetitions: nothing to compare it with."
    if len(first) == len(ranked):
        return f"No difference between the {len(ranked)} targets is certain."
    if len(first) == 1:
        return f"{first[0]} is better than every other target."
    shown = first if len(first) <= 3 else [*first[:2], f"{len(first) - 2} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]} share the first rank: the data don't tell them apart."


def _surely_better(
    values: Mapping[str, Sequence[float]], order: Sequence[str], direction: Direction, confidence: float
) -> dict[str, list[str]]:
    """For each target those before it that it is told apart from: by Holm's p, and by the interval that is shown."""
    pairs = {f"{a}:{b}": (order[a], order[b]) for a, b in combinations(range(len(order)), 2)}
    raw = {key: welch_p(values[first], values[other]) for key, (first, other) in pairs.items()}
    adjusted = holm({key: 1.0 if p is None else p for key, p in raw.items()})
    likely = [pairs[key] for key in pairs if adjusted[key] <= 1.0 - confidence]
    sides = [Pair(values[first], values[other], direction) for first, other in likely]
    better: dict[str, list[str]] = {name: [] for name in order}
    for (first, other), compared in zip(likely, compare_many(sides, seed=SEED, confidence=confidence), strict=True):
        if compared.verdict == "worse":
            better[other].append(first)
    return better


def _verdict(name: str, best: str | None, ranks: Mapping[str, int], better: Mapping[str, Sequence[str]]) -> Verdict:
    if name not in ranks:
        return "too few repetitions"
    if name == best:
        alone = sum(rank == 1 for rank in ranks.values()) == 1
        return "best" if alone else "tied for best"
    if best in better[name]:
        return "worse than the best"
    return "tied for best" if ranks[name] == 1 else "not told from the best"
