"""Rank groups of replicates, and determine which of them the data distinguishes from the best.

On a leaderboard, targets that are significantly better rank higher, and targets that the data does not distinguish
share a rank. One value is one trial; `docs/design/leaderboards.md` explains why ranks are counted this way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from benchhouse.analysis.compare import (
    CONFIDENCE,
    HIDDEN,
    SMALLEST_RESAMPLED,
    Pair,
    StatisticComparison,
    compare_many,
    hide_within,
    p_value,
)
from benchhouse.analysis.summary import Summary, finite, mean, summarise

Mark = Literal["best", "median", "worst"]
SEED = 20_240_229  # seed of the resamples; fixed, so that the same numbers always give the same intervals
FEW = SMALLEST_RESAMPLED
Direction = Literal["higher", "lower"]
Verdict = Literal[
    "best",
    "best mean",
    "tied for best",
    "worse than the best",
    "not told from the best",
    "too few repetitions",
    "within error bounds",
]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One group and its place."""

    name: str
    place: int  # 1 is best; groups with the same mean share the better place
    n: int
    mean: float
    mark: Mark | None
    p_value: float | None
    """p-value against the best, Welch's t test after Holm's correction; None for the best, and if a side has n < 2."""
    distinguishable: bool | None
    """Whether the data distinguishes it from the best; False for the best itself, None if a side has n < 2."""


def rank(
    groups: Mapping[str, Sequence[float]], direction: Direction, *, confidence: float = CONFIDENCE
) -> list[Ranked]:
    """Return the groups best first; equal means keep the order given. Raise ValueError for an empty group, NaN, or
    infinity.

    The best is selected from all groups, so the family for the correction is every pair, k(k-1)/2, not the k-1 pairs
    that include the winner: with ten equal groups, that smaller family would be wrong 13% of the time.
    """
    samples = {name: sorted(finite(values)) for name, values in groups.items()}
    for name, values in samples.items():
        if not values:
            raise ValueError(f"group {name!r} has no values to rank")
    means = {name: mean(values) for name, values in samples.items()}
    order = sorted(samples, key=lambda name: means[name], reverse=direction == "higher")
    if not order:
        return []
    best = order[0]
    tested = [name for name in order[1:] if min(len(samples[name]), len(samples[best])) >= 2]
    raw = {name: p_value(samples[best], samples[name]) or 0.0 for name in tested}
    adjusted = holm(raw, family=len(order) * (len(order) - 1) // 2)
    places: dict[float, int] = {}
    ranked = []
    for index, name in enumerate(order):
        p = adjusted.get(name)
        distinguishable = False if name == best else None if p is None else p <= 1.0 - confidence
        place = places.setdefault(means[name], index + 1)
        mark = mark_of(index, len(order), worse=bool(distinguishable))
        ranked.append(Ranked(name, place, len(samples[name]), means[name], mark, p, distinguishable))
    return ranked


def holm(p_values: Mapping[str, float], *, family: int | None = None) -> dict[str, float]:
    """Return Holm's step-down adjusted p-values; `family` is the number of hypotheses if only some were tested."""
    family = max(family or 0, len(p_values))
    adjusted: dict[str, float] = {}
    largest = 0.0
    for step, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        largest = max(largest, min(1.0, (family - step) * p_values[name]))
        adjusted[name] = largest
    return adjusted


def mark_of(index: int, count: int, *, worse: bool = False) -> Mark | None:
    """Return the mark of an index, best first. The last is the worst only if the data distinguishes it from the best
    (`worse`).

    The median of an even count is the better of the two; two groups have none.
    """
    if index == 0:
        return "best"
    if index == count - 1:
        return "worst" if worse else None
    return "median" if index == (count - 1) // 2 else None


# -- leaderboards


@dataclass(frozen=True, slots=True)
class RankedTarget:
    """One target on one board."""

    target: str
    rank: (
        int | None
    )  # 1 plus the number of targets that are significantly better; None if there are too few repetitions
    summary: Summary
    against_best: StatisticComparison | None  # None for the best itself, and if no target has repetitions
    better: tuple[str, ...]  # targets that are significantly better, after correction for many comparisons
    verdict: Verdict


def rank_targets(
    values: Mapping[str, Sequence[float]],
    direction: Direction,
    confidence: float = CONFIDENCE,
    bounds: Mapping[str, float | None] | None = None,
) -> list[RankedTarget]:
    """Return the ranked targets, best mean first. Raise ValueError for a target without values, NaN, or infinity.

    All pairs are tested and corrected for, because readers compare any two. A target is significantly worse only if
    both the corrected p-value and the interval say so: the two may disagree at the edge, and a board must not
    contradict itself. A difference below the sum of both error bounds (`bounds`) does not count.
    """
    bounds = bounds or {}
    summaries = {name: summarise(sample) for name, sample in values.items()}
    order = sorted(summaries, key=lambda name: summaries[name].mean, reverse=direction == "higher")
    repeated = [name for name in order if summaries[name].n > 1]
    better = _surely_better(values, repeated, direction, confidence, bounds)
    best = repeated[0] if repeated else None
    others = [name for name in order if name != best] if best else []
    compared = compare_many(
        [Pair(values[best or ""], values[name], direction) for name in others], seed=SEED, confidence=confidence
    )
    beside = {
        name: hide_within(result, bounds.get(best or ""), bounds.get(name))
        for name, result in zip(others, compared, strict=True)
    }
    ranks = {name: 1 + len(better[name]) for name in repeated}
    return [
        RankedTarget(
            target=name,
            rank=ranks.get(name),
            summary=summaries[name],
            against_best=beside.get(name),
            better=tuple(better.get(name, ())),
            verdict=_verdict(name, best, ranks, better, beside),
        )
        for name in order
    ]


def sentence(standings: Sequence[RankedTarget]) -> str:
    """Return one line with the leader and how certain its lead is."""
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
    values: Mapping[str, Sequence[float]],
    order: Sequence[str],
    direction: Direction,
    confidence: float,
    bounds: Mapping[str, float | None],
) -> dict[str, list[str]]:
    """Return, for each target, the targets before it that are significantly better, by Holm's p-value and by the
    interval shown.
    """
    pairs = {f"{a}:{b}": (order[a], order[b]) for a, b in combinations(range(len(order)), 2)}
    raw = {key: p_value(values[first], values[other]) for key, (first, other) in pairs.items()}
    adjusted = holm({key: 1.0 if p is None else p for key, p in raw.items()})
    likely = [pairs[key] for key in pairs if adjusted[key] <= 1.0 - confidence]
    sides = [Pair(values[first], values[other], direction) for first, other in likely]
    better: dict[str, list[str]] = {name: [] for name in order}
    for (first, other), compared in zip(likely, compare_many(sides, seed=SEED, confidence=confidence), strict=True):
        if hide_within(compared, bounds.get(first), bounds.get(other)).verdict == "worse":
            better[other].append(first)
    return better


def _verdict(
    name: str,
    best: str | None,
    ranks: Mapping[str, int],
    better: Mapping[str, Sequence[str]],
    beside: Mapping[str, StatisticComparison],
) -> Verdict:
    if name not in ranks:
        return "too few repetitions"
    if name == best:
        first = [other for other in ranks if ranks[other] == 1 and other != best]
        return "tied for best" if any(_tied(beside[other]) for other in first) else "best mean" if first else "best"
    if best in better[name]:
        return "worse than the best"
    if beside[name].verdict == HIDDEN:
        return "within error bounds"
    return "tied for best" if ranks[name] == 1 and _tied(beside[name]) else "not told from the best"


def _tied(beside: StatisticComparison) -> bool:
    """Whether the values of the two sides overlap. If they do not, there are too few values to decide, which is not a
    tie.
    """
    return beside.verdict == HIDDEN or abs(beside.cliffs_delta) < 1.0
