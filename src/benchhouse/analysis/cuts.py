"""Cuts between two levels: where the new level begins, how strong the evidence is, and which cuts hold up.

Every place is rated by its likelihood. Among places that are nearly as likely, the one with most of the likelihood near
it is chosen. In autocorrelated noise, the first run of a new level carries the most information, because the previous
run does not explain it.
"""

import math
from typing import NamedTuple

import numpy as np

from benchhouse.analysis.segments import Vector, median

NEAR = 5  # runs in either direction that count as the same place
# runs of a new level from which its beginning can be located: most of the five that a cut is found by
FEWEST = 3
_MULTISCALE, _LONG = 2.0, 50  # a short stretch has more places where a cut can be found by chance
_LEAST_Z, _USUAL = 3.9, 200
_Z_A_DECADE = 0.4
_SMALL, _SMALL_EXTRA, _LARGE_ONES = 0.6, 1.2, 4
_FAR = 5.0  # standard errors up to which skewness is considered
_SWEEPS = 2
_CLIP = 2.5  # standard deviations outside both levels, beyond which a value counts no more than one at that distance


class CutCandidate(NamedTuple):
    """The likeliest beginning of a new level."""

    at: int
    # twice the log likelihood ratio of two levels to one: for one given place the square of a z
    evidence: float
    size: float  # the level after minus the level before


def place(x: Vector, start: int, cut: int, end: int, error: float) -> CutCandidate:
    """Return the likeliest place between `start` and `end`, given a cut at about `cut` and independent noise.

    A level of fewer runs than FEWEST has no evidence: its runs may be outliers.
    """
    gains, sizes = _gains(_pull_in(x, start, cut, end, 0.0, error), 0.0, 1)
    peak = int(gains.argmax())
    if not FEWEST <= peak + 1 <= end - start - FEWEST:
        return CutCandidate(cut, 0.0, 0.0)
    most = float(gains[peak]) / (error * error)
    likely = np.exp((gains - gains[peak]) / (2.0 * error * error))
    best = peak
    if len(likely) > 2 * NEAR + 1:
        around = np.convolve(likely, np.ones(2 * NEAR + 1), "same")
        around[: FEWEST - 1] = around[1 - FEWEST :] = 0.0
        best = int((around + 1e-6 * likely).argmax())
    return CutCandidate(start + 1 + best, most, float(sizes[peak]))


def likeliest(x: Vector, start: int, cut: int, end: int, memory: float, error: float) -> tuple[int, float]:
    """Return the likeliest place and its step in autocorrelated noise; `error` is the deviation of a run given the
    previous one.
    """
    gains, sizes = _gains(_pull_in(x, start, cut, end, memory, error), memory, FEWEST)
    peak = int(gains.argmax())
    return start + FEWEST + peak, float(sizes[peak])


def _pull_in(x: Vector, start: int, cut: int, end: int, memory: float, error: float) -> Vector:
    """Return the runs relative to the level before the cut, limited to the plausible distance outside both levels."""
    left, right = median(x[start:cut]), median(x[cut:end])
    reach = _CLIP * error / float(np.sqrt(1.0 - memory * memory))
    near: Vector = np.clip(x[start:end], min(left, right) - reach, max(left, right) + reach) - left
    return near


def _gains(x: Vector, memory: float, shortest: int) -> tuple[Vector, Vector]:
    """Return how many squares two levels explain that one does not, for each place, and the best-fitting step there.

    In x[t] - memory * x[t-1], one level contributes `keep` at each run. At the first run after a step, the new level
    contributes 1 and the old one -memory; the very first run counts as it is.
    """
    n, keep, first = len(x), 1.0 - memory, 1.0 - memory * memory
    steps = x[1:] - memory * x[:-1]
    sums = np.concatenate([[0.0], np.cumsum(steps)])
    at = np.arange(shortest, n - shortest + 1)
    here = steps[at - 1]
    before = keep * sums[at - 1] - memory * here + first * x[0]
    after = here + keep * (sums[-1] - sums[at])
    known_before = (at - 1) * keep * keep + memory * memory + first
    known_after = 1.0 + (n - 1 - at) * keep * keep
    shared = known_before * known_after - memory * memory
    explained = (before * before * known_after + 2.0 * memory * before * after + after * after * known_before) / shared
    whole = keep * float(sums[-1]) + first * float(x[0])
    single = whole * whole / ((n - 1) * keep * keep + first)
    sizes = (after * known_before + memory * before - before * known_after - memory * after) / shared
    return explained - single, sizes


class _Cuts:
    """Cuts with the evidence for each; dropping one updates its neighbors."""

    def __init__(self, x: Vector, cuts: list[int], error: float, skewness: float) -> None:
        self.x, self.cuts, self.error, self.skewness = x, list(cuts), error, skewness
        self.places = [self.look(at) for at in range(len(self.cuts))]
        self.scores = [self.score(at) for at in range(len(self.cuts))]

    def ends(self, at: int) -> tuple[int, int]:
        return self.cuts[at - 1] if at else 0, self.cuts[at + 1] if at + 1 < len(self.cuts) else len(self.x)

    def look(self, at: int) -> CutCandidate:
        start, end = self.ends(at)
        return place(self.x, start, self.cuts[at], end, self.error)

    def score(self, at: int) -> float:
        start, end = self.ends(at)
        before, after = self.cuts[at] - start, end - self.cuts[at]
        evidence = self.places[at].evidence - _MULTISCALE * math.log(_LONG / min(before, after, _LONG))
        z = math.sqrt(max(0.0, evidence))
        # By chance, a few runs of skewed noise lie farther out on its long side (Cornish and Fisher).
        skewness = self.skewness * (1.0 / after**2 - 1.0 / before**2) / (1.0 / after + 1.0 / before) ** 1.5
        return z - max(0.0, math.copysign(skewness, skewness * self.places[at].size)) * (min(z, _FAR) ** 2 - 1.0) / 6.0

    def drop(self, at: int) -> None:
        for column in (self.cuts, self.places, self.scores):
            del column[at]
        for near in (at - 1, at):
            if 0 <= near < len(self.cuts):
                self.places[near] = self.look(near)
                self.scores[near] = self.score(near)


def prune(x: Vector, cuts: list[int], error: float, floor: float, skewness: float) -> list[int]:
    """Drop the weakest cut until all hold up; cuts far smaller than the rest need stronger evidence."""
    kept = _Cuts(x, cuts, error, skewness)
    needed = _LEAST_Z + _Z_A_DECADE * math.log10(len(x) / _USUAL)
    while kept.cuts:
        weakest = min(range(len(kept.cuts)), key=kept.scores.__getitem__)
        if kept.scores[weakest] >= needed:
            margins = _margins(kept, needed, floor)
            weakest = min(range(len(kept.cuts)), key=margins.__getitem__)
            if margins[weakest] >= 0.0:
                break
        kept.drop(weakest)
    for _ in range(_SWEEPS):
        for at in range(len(kept.cuts)):
            kept.cuts[at] = kept.look(at).at
    return kept.cuts


def _margins(kept: _Cuts, needed: float, floor: float) -> list[float]:
    """Return by how much each cut exceeds the required strength."""
    sizes = [abs(place.size) for place in kept.places]
    scores = [score if size >= floor else -math.inf for score, size in zip(kept.scores, sizes, strict=True)]
    strong = sorted(size for size, score in zip(sizes, scores, strict=True) if score >= needed)
    small = strong[-1 - len(strong) // _LARGE_ONES] * _SMALL if strong else 0.0
    return [score - needed - (_SMALL_EXTRA if size < small else 0.0) for size, score in zip(sizes, scores, strict=True)]
