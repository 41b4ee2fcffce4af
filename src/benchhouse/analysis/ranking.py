"""Rank groups of replicates, and say which of them the data tell apart from the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchhouse.analysis.compare import p_value
from benchhouse.analysis.summary import finite, mean

Mark = Literal["best", "median", "worst"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One group and its place."""

    name: str
    place: int  # 1 is best; groups with the same mean share the better place
    n: int
    mean: float
    mark: Mark | None
    p_value: float | None
    """Against the best, Welch's t test after Holm's correction; None for the best, and where a side has n < 2."""
    distinguishable: bool | None
    """Whether the data tell it from the best; False for the best itself, None where a side has n < 2."""


def rank(
    groups: Mapping[str, Sequence[float]], direction: Literal["higher", "lower"], *, confidence: float = 0.95
) -> list[Ranked]:
    """Order groups best first; equal means keep the order given. Raises ValueError for an empty group, NaN or infinity.

    The best is picked by looking at all groups, so the family corrected for is every pair, k(k-1)/2, not the k-1
    pairs that happen to include the winner: with ten equal groups that smaller family would be wrong 13% of the time.
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
        mark = mark_of(index, len(order))
        ranked.append(Ranked(name, place, len(samples[name]), means[name], mark, p, distinguishable))
    return ranked


def holm(p_values: Mapping[str, float], *, family: int | None = None) -> dict[str, float]:
    """Holm's step-down adjusted p-values; `family` counts the hypotheses when only some were tested (never fewer)."""
    family = max(family or 0, len(p_values))
    adjusted: dict[str, float] = {}
    largest = 0.0
    for step, name in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        largest = max(largest, min(1.0, (family - step) * p_values[name]))
        adjusted[name] = largest
    return adjusted


def mark_of(index: int, count: int) -> Mark | None:
    """Of a place from 0, best first. The median of an even count is the better of the two; two groups have none."""
    if index == 0:
        return "best"
    if index == count - 1:
        return "worst"
    return "median" if index == (count - 1) // 2 else None
