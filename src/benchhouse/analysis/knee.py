"""The load at which the share of requests over a limit crosses the allowed share, as a distribution.

Near the crossing, the odds of being over the limit are modeled as a floor (slow requests that load does not explain)
plus a term that grows as a power of the load. Place, steepness, and floor are unknown: all combinations on a grid are
weighed by their likelihood, which gives the posterior of the place. Far from the crossing the model does not hold; a
probe there shows only on which side the crossing lies. Loads are natural logarithms throughout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchhouse.analysis.saturation import TrialCounts

Vector = NDArray[np.float64]

_PLACES = 41
_SLOPES = (1.5, 500.0, 13)  # from a gentle slope to a cliff, in equal ratios
_USUAL_SLOPE, _SLOPE_SD = 20.0, 0.5  # most services break within 3% to 10% of load
_ANY_SLOPE = 0.01  # prior weight of any slope, even a cliff, relative to the usual one
_FLOORS = (0.0, 0.2, 0.4, 0.6, 0.8)  # shares of the allowed odds
_REACH = 1.2  # the model holds above the knee until the odds have grown by about this power of e
_NARROWEST = 0.04  # log load: but at least this far
_BELOW = 8.0  # and this many times farther below it, where almost only the floor is left
_BEND, _MOST_BEND = 90.0, 0.35  # the steeper the curve, the more it bends up toward saturation
_MOST = 12.0  # times the allowed odds: above this, the share is not steady
_FAR = 1e-3  # a trial with less weight is ignored
CLUMP = 1.0  # batches that the first guess treats as one clump
_LEAST_CLUMP = 50.0  # requests: but at least this many
_GUESS_SD = 1.0  # standard deviation of the logarithm of that guess
_TRIAL_SD = 0.85  # standard deviation of the logarithm of one trial's dispersion
# bias of the logarithm of a trial's dispersion: it is too small on average, as most trials see fewer clumps than there
# are
_LOW = 0.25
_FEW = 2.0  # a trial that sees about this many clumps has half of that bias in addition
_NODES, _SPAN = 5, 2.2  # strengths that represent all, and the standard deviations that they span


@dataclass(frozen=True, slots=True)
class KneePosterior:
    """Possible places of a knee: probabilities at ascending loads, and values for choosing the next probe."""

    xs: Vector
    below: Vector  # probability that the knee is at or below the place
    share: float  # allowed by the clause
    slope: float  # slope of the growing part of the odds
    steepness: float  # slope of all the odds at the knee: less than `slope` if there is a floor
    floor: float  # share of the allowed odds that load does not explain
    dispersion: float  # dispersion at the knee
    near: tuple[float, ...]  # for each trial, from 0 to 1: the weight with which it follows the model

    def at(self, probability: float) -> float:
        """Return the load below which the knee lies with this probability."""
        return float(np.interp(probability, self.below, self.xs))

    def half_width(self, confidence: float) -> float:
        tail = (1.0 - confidence) / 2.0
        return (self.at(1.0 - tail) - self.at(tail)) / 2.0


def locate(seen: Sequence[TrialCounts], share: float, low: float, high: float, clump: float = CLUMP) -> KneePosterior:
    """Return the posterior of the knee of one clause, between `low` and `high`; for `clump` see `fit_clumping`."""
    place = _posterior(seen, [1.0] * len(seen), share, low, high, clump)
    for _ in range(2):
        lowest, highest = place.at(1e-4), place.at(1.0 - 1e-4)
        spare = 0.25 * (highest - lowest) + 1e-6
        centre, reach = place.at(0.5), max(_NARROWEST, _REACH / place.slope, place.half_width(0.9))
        near = []
        for trial in seen:  # 1 near the knee, falling to 0: the weight with which a probe there follows the model
            distance = trial.x - centre
            near.append(1.0 / (1.0 + (distance / (reach if distance > 0 else _BELOW * reach)) ** 6))
        place = _posterior(seen, near, share, max(low, lowest - spare), min(high, highest + spare), clump)
    return place


def earliest(places: Sequence[KneePosterior]) -> KneePosterior:
    """Return the lowest of several knees, where the first clause breaks."""
    if len(places) == 1:
        return places[0]
    xs = np.unique(np.concatenate([place.xs for place in places]))
    holds = np.ones(len(xs))
    for place in places:
        holds *= 1.0 - np.interp(xs, place.xs, place.below, left=0.0, right=1.0)
    first = min(places, key=lambda place: place.at(0.5))
    return replace(first, xs=xs, below=1.0 - holds)


class Clumping(NamedTuple):
    """How strongly requests over the limit clump: for each floor (a row), strengths and the logarithms of their odds.

    A share `c` of all requests that arrives in clumps, if a share `a` is allowed, has 1 + strength * sqrt(c / a) times
    the variance of independent requests: the higher the load, the longer a queue stays.
    """

    strengths: Vector
    logs: Vector


def fit_clumping(
    seen: Sequence[TrialCounts], weights: Sequence[float], allowed: float, floors: Sequence[float], clump: float = CLUMP
) -> Clumping:
    """Fit one strength for all trials, for each floor; `clump` batches count as one clump until the data shows
    otherwise.

    A trial's own dispersion cannot be used: a trial with a low share by chance also has a low spread, and such trials
    would get the largest weight. A floor (a part of the allowed share) does not clump.
    """
    a_batch = sum(trial.n for trial in seen) / sum(trial.batches for trial in seen)
    guess = math.log(max(_LEAST_CLUMP, clump * a_batch)) if clump else 0.0
    rows = [(trial, weight) for trial, weight in zip(seen, weights, strict=True) if trial.df and weight > _FAR]
    part = np.array(floors)[:, None]
    wide = guess + np.linspace(-8.0, 4.0, 25)[None, :] + 0.0 * part
    chances = _log_odds(rows, allowed, part, wide, guess)
    chances = np.exp(chances - chances.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    mean = (chances * wide).sum(axis=1, keepdims=True)
    sd = np.maximum(0.1, np.sqrt((chances * (wide - mean) ** 2).sum(axis=1, keepdims=True)))
    nodes = mean + _SPAN * sd * np.linspace(-1.0, 1.0, _NODES)
    return Clumping(np.exp(nodes), _log_odds(rows, allowed, part, nodes, guess) + np.log(sd))


def _log_odds(
    rows: Sequence[tuple[TrialCounts, float]], allowed: float, floors: Vector, nodes: Vector, guess: float
) -> Vector:
    """Return the log odds of these logarithms of the strength, from the first guess and the weighted trials."""
    strengths = np.exp(nodes)
    logs: Vector = -0.5 * ((nodes - guess) / _GUESS_SD) ** 2
    for trial, weight in rows:
        share = trial.over / trial.n
        clumped = np.maximum(share - floors * allowed, 0.01 * share)
        growth = np.sqrt(clumped / allowed)
        excess = strengths * clumped / share * growth
        clumps = trial.n * clumped / growth / strengths  # clumps that a trial of this length sees
        expected = np.log1p(excess) - _LOW - np.log1p(_FEW / clumps) * excess / (1.0 + excess)
        logs -= 0.5 * weight * ((math.log(max(trial.dispersion, 0.3)) - expected) / _TRIAL_SD) ** 2
        logs -= 0.5 * weight * np.log1p(excess)
    return logs


def _posterior(
    seen: Sequence[TrialCounts], near: Sequence[float], share: float, low: float, high: float, clump: float
) -> KneePosterior:
    spread = fit_clumping(seen, near, share, _FLOORS, clump)
    strengths = spread.strengths
    xs, slopes, floors = np.linspace(low, high, _PLACES), np.geomspace(*_SLOPES), np.array(_FLOORS)
    logs = spread.logs - 0.5 * _deviance(seen, near, strengths, share, xs, slopes)
    prior = np.exp(-0.5 * (np.log(slopes / _USUAL_SLOPE) / _SLOPE_SD) ** 2) + _ANY_SLOPE
    weights = np.exp(logs - logs.max()) * prior[None, :, None, None]
    mass = weights.sum(axis=(1, 2, 3))
    steps = np.concatenate([[0.0], (mass[1:] + mass[:-1]) / 2.0])
    chances = weights.sum(axis=0) / weights.sum()
    by_slope, by_floor, by_strength = chances.sum(axis=(1, 2)), chances.sum(axis=(0, 2)), chances.sum(axis=0)
    floor = float((by_floor * floors).sum())
    slope = math.exp(float((by_slope * np.log(slopes)).sum()))
    steepness = math.exp(float((chances.sum(axis=2) * (np.log(slopes)[:, None] + np.log1p(-floors)[None, :])).sum()))
    dispersion = 1.0 + math.exp(float((by_strength * (np.log(strengths) + 1.5 * np.log1p(-floors)[:, None])).sum()))
    return KneePosterior(
        xs=xs,
        below=np.cumsum(steps) / steps.sum(),
        share=share,
        slope=slope,
        steepness=steepness,
        floor=floor,
        dispersion=dispersion,
        near=tuple(near),
    )


def _deviance(
    seen: Sequence[TrialCounts], near: Sequence[float], strengths: Vector, share: float, xs: Vector, slopes: Vector
) -> Vector:
    """Return the deviance of every place, slope, floor, and strength of clumps."""
    floors, allowed = np.array(_FLOORS), share / (1.0 - share)
    most = _MOST * allowed / (1.0 + _MOST * allowed)
    deviance = np.zeros((len(xs), len(slopes), *strengths.shape))
    for trial, weight in zip(seen, near, strict=True):
        doubt = _clumped(trial, share + 0.0 * floors, share * (1.0 - floors), share, strengths, 1.0)
        wrong = (trial.x > xs) if trial.over < share * trial.n else (trial.x < xs)
        aside = 1.0 if trial.over > most * trial.n else 1.0 - weight
        deviance += (aside * wrong)[:, None, None, None] * doubt
        if weight > _FAR:
            bends = np.minimum(_MOST_BEND, slopes / _BEND)
            steps = np.clip(np.outer(trial.x - xs, slopes), -50.0, 1.0 / bends)
            growth = np.exp(steps / (1.0 - 0.5 * bends * steps))[:, :, None]
            odds = allowed * (floors + (1.0 - floors) * growth)
            clumps = allowed * (1.0 - floors) * growth / (1.0 + odds)
            deviance += weight * _clumped(trial, odds / (1.0 + odds), clumps, share, strengths, most)
    return deviance


def _clumped(
    trial: TrialCounts, share: Vector, clumps: Vector, allowed: float, strengths: Vector, most: float
) -> Vector:
    """Return the deviance of the trial's counts if `share` were true and `clumps` of it came in clumps of these
    strengths.

    Clumps are a random number of random size (a compound Poisson law with exponential clumps, Tweedie's with power
    1.5); the rest is binomial. The law of both together is approximated by Tweedie's with a shifted origin, which has
    the right variance with and without clumps. A share above `most` counts only as "more than that": so close to
    saturation the share is not steady, and one clump can fill a trial.
    """
    observed = trial.over / trial.n
    if observed > most:
        observed, share, clumps = most, np.minimum(share, most), np.minimum(clumps, most)
    share, clumps = np.minimum(share, 0.999), np.maximum(clumps, 1e-9)
    binomial = share * (1.0 - share)
    more = 1.0 + (clumps / share * np.sqrt(clumps / allowed))[..., None] * strengths
    ratio = np.maximum(np.exp(np.log(more) * (2.0 / 3.0)), 1.0 + 1e-5)
    origin = clumps[..., None] * ratio / (ratio - 1.0)  # distance below the share
    z = 1.0 + (observed - share)[..., None] / origin
    deviance: Vector = 4.0 * origin**2 / (binomial[..., None] * more) * (np.sqrt(np.maximum(z, 0.0)) - 1.0) ** 2
    deviance += (np.minimum(z, 0.0) * origin) ** 2 / binomial[..., None]
    return trial.n * deviance
