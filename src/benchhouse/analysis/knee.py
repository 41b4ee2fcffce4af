"""Where the share of requests over a limit crosses the share that is allowed: a distribution over the load.

Near the crossing, the odds of being over are modelled as a floor (slow requests that no load explains) plus a term that
grows as a power of the load. Place, steepness and floor are unknown; all combinations on a grid are weighed by their
likelihood, and what remains for the place is its posterior. Far from the crossing the model is not believed: there, a
probe only says on which side the crossing lies. Loads are natural logarithms throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchhouse.analysis.batches import CLUMP, Dispersion, Seen, fit_dispersion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]

_PLACES = 81
_SLOPES = (1.0, 1000.0, 21)  # from a gentle slope to a cliff, in equal ratios
_FLOORS = (0.0, 0.2, 0.4, 0.6, 0.8)  # of the allowed odds
_REACH = 1.2  # the model is believed as far above the knee as the odds grow by about this power of e
_NARROWEST = 0.04  # log load: but at least so far
_BELOW = 4.0  # and so many times further below it, where little but the floor is left
_FAR = 1e-3
_MOST = 4.0  # times the allowed odds


@dataclass(frozen=True, slots=True)
class Place:
    """Where a knee may be: probabilities at ascending loads, and what the next probe needs to know."""

    xs: Vector
    below: Vector  # probability that the knee is at or below the place
    share: float  # that the clause allows
    slope: float  # of the part of the odds that grows
    steepness: float  # of all the odds, at the knee: less than the slope where there is a floor
    dispersion: float  # at the knee
    memory: float  # batches that a clump lasts
    near: tuple[float, ...]  # for each trial, from 0 to 1: how much it was believed to follow the model

    def at(self, probability: float) -> float:
        """The load below which the knee lies with this probability."""
        import numpy as np

        return float(np.interp(probability, self.below, self.xs))

    def half_width(self, confidence: float) -> float:
        tail = (1.0 - confidence) / 2.0
        return (self.at(1.0 - tail) - self.at(tail)) / 2.0


def locate(seen: Sequence[Seen], share: float, low: float, high: float, clump: float = CLUMP) -> Place:
    """The knee of one clause, somewhere from `low` to `high`; `clump` as in `fit_dispersion`."""
    everywhere = [1.0] * len(seen)
    place = _posterior(seen, everywhere, share, [share] * len(seen), low, high, (low + high) / 2.0, clump)
    for _ in range(2):
        lowest, highest = place.at(1e-4), place.at(1.0 - 1e-4)
        spare = 0.25 * (highest - lowest) + 1e-6
        centre, reach = place.at(0.5), max(_NARROWEST, _REACH / place.slope, place.half_width(0.9))
        near = [_nearness(trial.x - centre, reach) for trial in seen]
        grown = [math.exp(max(-3.0, min(3.0, place.steepness * (trial.x - centre)))) for trial in seen]
        typical = [share * growth / (1.0 - share + share * growth) for growth in grown]
        place = _posterior(
            seen, near, share, typical, max(low, lowest - spare), min(high, highest + spare), centre, clump
        )
    return place


def earliest(places: Sequence[Place]) -> Place:
    """The lowest of several knees: where the first clause breaks."""
    import numpy as np

    if len(places) == 1:
        return places[0]
    xs = np.unique(np.concatenate([place.xs for place in places]))
    holds = np.ones(len(xs))
    for place in places:
        holds *= 1.0 - np.interp(xs, place.xs, place.below, left=0.0, right=1.0)
    first = min(places, key=lambda place: place.at(0.5))
    return replace(first, xs=xs, below=1.0 - holds)


def _posterior(
    seen: Sequence[Seen],
    near: Sequence[float],
    share: float,
    typical: Sequence[float],
    low: float,
    high: float,
    centre: float,
    clump: float,
) -> Place:
    import numpy as np

    spread = fit_dispersion(seen, near, centre, clump)
    xs, slopes = np.linspace(low, high, _PLACES), np.geomspace(*_SLOPES)
    deviance = _deviance(seen, near, spread, share, typical, xs, slopes)
    least = float(deviance.min())
    # What the best of all curves leaves unexplained between the trials is spread too, if it is more than within them.
    free = max(0.0, sum(near) - 3.0)
    df = spread.df + free
    excess = max(1.0, (spread.df + least) / df) if free else 1.0
    # Student's form: the spread itself is only known as well as its degrees of freedom allow.
    logs = -0.5 * (df + 1.0) * np.log1p((deviance - least) / (excess * df))
    weights = np.exp(logs) * _slope_prior(slopes)[None, :, None]
    mass = weights.sum(axis=(1, 2))
    steps = np.concatenate([[0.0], (mass[1:] + mass[:-1]) / 2.0])
    log_slopes = np.log(slopes)[:, None] + np.zeros(len(_FLOORS))
    chances = weights.sum(axis=0) / weights.sum()
    log_steepness = log_slopes + np.log1p(-np.array(_FLOORS))
    return Place(
        xs=xs,
        below=np.cumsum(steps) / steps.sum(),
        share=share,
        slope=math.exp(float((chances * log_slopes).sum())),
        steepness=math.exp(float((chances * log_steepness).sum())),
        dispersion=spread.at(centre),
        memory=spread.memory,
        near=tuple(near),
    )


def _deviance(
    seen: Sequence[Seen],
    near: Sequence[float],
    spread: Dispersion,
    share: float,
    typical: Sequence[float],
    xs: Vector,
    slopes: Vector,
) -> NDArray[np.float64]:
    """Of every place, slope and floor."""
    import numpy as np

    floors, allowed = np.array(_FLOORS), share / (1.0 - share)
    most = _MOST * allowed / (1.0 + _MOST * allowed)
    deviance = np.zeros((len(xs), len(slopes), len(floors)))
    for trial, weight, usual in zip(seen, near, typical, strict=True):
        n = trial.n / spread.at(trial.x)
        doubt = n * _clumped(trial, np.array(share), share, 1.0)
        wrong = (trial.x > xs) if trial.over < share * trial.n else (trial.x < xs)
        aside = 1.0 if trial.over > most * trial.n else 1.0 - weight
        deviance += (aside * doubt * wrong)[:, None, None]
        if weight > _FAR:
            growth = np.exp(np.clip(np.outer(trial.x - xs, slopes), -50.0, 50.0))
            odds = allowed * (floors + (1.0 - floors) * growth[:, :, None])
            deviance += weight * n * _clumped(trial, odds / (1.0 + odds), usual, most)
    return deviance


def _clumped(trial: Seen, share: Vector, usual: float, most: float) -> Vector:
    """Deviance per effective request of what the trial showed, if `share` were true.

    Requests over a limit come as a random number of clumps of random size (a compound Poisson law with exponential
    clumps, Tweedie's with power 1.5). It is more lopsided than a binomial: a trial with few over has often just missed
    a clump.
    `usual` is the share for which the dispersion was taken. More than `most` only says "more than that": so near to
    saturation there is no steady share, and one clump can fill a trial.
    """
    import numpy as np

    observed = trial.over / trial.n
    if observed > most:
        observed, share = most, np.minimum(share, most)
    gap = math.asin(math.sqrt(observed)) - np.arcsin(np.sqrt(share))
    deviance: Vector = 4.0 * gap * gap * np.sqrt(usual / np.maximum(share, 1e-12))
    return deviance


def _nearness(distance: float, reach: float) -> float:
    """1 near the knee, falling to 0: how far a probe at this distance is believed to follow the model."""
    return 1.0 / (1.0 + (distance / (reach if distance > 0 else _BELOW * reach)) ** 6)


def _slope_prior(slopes: Vector) -> Vector:
    """Most services break within 5% to 30% of load (slope 3 to 30); the tails leave room for a cliff."""
    import numpy as np

    prior: Vector = (1.0 + (np.log(slopes / 12.0) / 0.6) ** 2 / 3.0) ** -2.0
    return prior
