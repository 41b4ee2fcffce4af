"""Scaling laws, fitted to throughput along an axis: Amdahl's, Gustafson's, and the universal scalability law (USL).

Each gives the throughput of N units as a multiple of `rate`, that of one unit:

    Amdahl       N / (1 + s (N - 1))                          s: share of the work that is serial
    Gustafson    N - s (N - 1)                                the same if work grows with N (weak scaling)
    USL          N / (1 + sigma (N - 1) + kappa N (N - 1))    sigma: contention; kappa: coherence, makes it fall again

The means of the stages are fitted by least squares on the scale of logarithms, because spread grows with the value. A
parameter is then a smooth function of these means, with an interval from `contrast`: it covers the spread over trials,
not the possibility that the law is wrong; see `misfit` for that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from benchhouse.analysis.compare import CONFIDENCE, Interval
from benchhouse.analysis.contrast import estimate, interval
from benchhouse.analysis.scaling import ScalingStage

PAYS = 0.5
"""Adding units pays as long as each has this share of the throughput per unit of the first stage."""
FEWEST = {"amdahl": 3, "gustafson": 3, "usl": 4}
"""Stages that a fit needs: one more than the law has parameters, including `rate`."""
LawName = Literal["amdahl", "gustafson", "usl"]
_MOST_STEPS = 60
_CONVERGED = 1e-12
_FLAT = 1e-9  # for u = 1/N: below this, the place is too far away to count

Theta = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number of a law; it has no interval if a stage has one trial."""

    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Law:
    """One law with its parameters by name (`s`; `sigma`, `kappa`), as fitted: noise may make them negative."""

    name: LawName
    rate: float
    parameters: dict[str, Fitted]
    misfit: float
    """The largest distance of a stage's mean from the law, as a share of the latter."""
    pays_to: Fitted
    """Where efficiency relative to the first stage falls to PAYS; infinite if it never does."""
    peak: Fitted | None
    """Where throughput is highest. Only USL has it."""

    def efficiency(self, place: float, first: float) -> float:
        theta = tuple(fitted.value for fitted in self.parameters.values())
        return _multiple(self.name, theta, place) / _multiple(self.name, theta, first) * first / place

    def throughput(self, place: float) -> float:
        return self.rate * _multiple(self.name, tuple(fitted.value for fitted in self.parameters.values()), place)


def fit(name: LawName, stages: Sequence[ScalingStage], *, seed: int, confidence: float = CONFIDENCE) -> Law | None:
    """Fit a law. None for too few stages, and for means that aren't above zero."""
    ordered = sorted(stages, key=lambda stage: stage.place)
    means = [math.fsum(stage.values) / len(stage.values) for stage in ordered]
    places = [stage.place for stage in ordered]
    if len({*places}) < FEWEST[name] or min(means) <= 0.0 or places[0] <= 0.0:
        return None
    theta = _solve(name, places, means, tuple(0.0 for _ in _names(name)))
    samples = [(stage.values,) for stage in ordered]

    def fitted(number: Callable[[Theta], float], inverse: Callable[[float], float] | None = None) -> Fitted:
        """Return a number of the parameters; pass `inverse` if its interval comes from its reciprocal, which may be
        zero.
        """
        made = estimate(lambda values: number(_solve(name, places, values, theta)), samples)
        ends = interval(made, confidence=confidence, seed=seed)[0]
        if inverse is None:
            return Fitted(made.value, ends)
        return Fitted(inverse(made.value), Interval(inverse(ends.hi), inverse(ends.lo)) if ends else None)

    rate = math.exp(_log_rate(name, places, means, theta))
    return Law(
        name,
        rate,
        {key: fitted(itemgetter(at)) for at, key in enumerate(_names(name))},
        max(
            abs(mean / (rate * _multiple(name, theta, place)) - 1.0) for place, mean in zip(places, means, strict=True)
        ),
        fitted(lambda theta: _pays_inverse(name, theta, places[0]), _reciprocal),
        fitted(lambda theta: theta[1] / max(1.0 - theta[0], _FLAT), _root_of_reciprocal) if name == "usl" else None,
    )


def _names(name: LawName) -> tuple[str, ...]:
    return ("sigma", "kappa") if name == "usl" else ("s",)


def _reciprocal(inverse: float) -> float:
    return 1.0 / inverse if inverse > _FLAT else math.inf


def _root_of_reciprocal(inverse: float) -> float:
    return math.sqrt(_reciprocal(inverse))


def _multiple(name: LawName, theta: Theta, place: float) -> float:
    """Return throughput as a multiple of that of one unit; not above zero if the parameters are invalid for the law."""
    return (
        place * _weak_efficiency(theta, place)
        if name == "gustafson"
        else place / max(_drag(name, theta, place), 1e-300)
    )


def _weak_efficiency(theta: Theta, place: float) -> float:
    """Return throughput per unit relative to that of one unit alone, by Gustafson's law."""
    return 1.0 - theta[0] * (place - 1.0) / place


def _drag(name: LawName, theta: Theta, place: float) -> float:
    """Return the divisor of the throughput of N independent units."""
    kappa = theta[1] if name == "usl" else 0.0
    return 1.0 + theta[0] * (place - 1.0) + kappa * place * (place - 1.0)


def _pays_inverse(name: LawName, theta: Theta, first: float) -> float:
    """Return 1/N where efficiency is PAYS of that at `first`; zero or less if it never is."""
    if name == "gustafson":
        return (PAYS * _weak_efficiency(theta, first) - 1.0 + theta[0]) / theta[0] if theta[0] > _FLAT else 0.0
    # kappa + (sigma - kappa) u - (wanted + sigma - 1) u^2 = 0, with u = 1/N
    sigma, kappa = theta[0], theta[1] if name == "usl" else 0.0
    bend = _drag(name, theta, first) / PAYS + sigma - 1.0
    slope = sigma - kappa
    inside = slope * slope + 4.0 * bend * kappa
    return (slope + math.sqrt(inside)) / (2.0 * bend) if inside >= 0.0 and bend > 0.0 else 0.0


def _solve(name: LawName, places: Sequence[float], means: Sequence[float], start: Theta) -> Theta:
    """Fit least squares on logs by Gauss-Newton steps, halved if they increase the error."""
    theta, error = start, _error(name, places, means, start)
    for _ in range(_MOST_STEPS):
        step = _step(name, places, means, theta)
        for _ in range(_MOST_STEPS):
            moved = tuple(value + change for value, change in zip(theta, step, strict=True))
            reached = _error(name, places, means, moved)
            if reached <= error:
                break
            step = tuple(change / 2.0 for change in step)
        else:
            return theta
        theta, error = moved, reached
        if max(map(abs, step)) < _CONVERGED:
            break
    return theta


def _log_rate(name: LawName, places: Sequence[float], means: Sequence[float], theta: Theta) -> float:
    """Return the best log rate for these parameters."""
    logs = [math.log(mean / _multiple(name, theta, place)) for place, mean in zip(places, means, strict=True)]
    return math.fsum(logs) / len(logs)


def _error(name: LawName, places: Sequence[float], means: Sequence[float], theta: Theta) -> float:
    drags = [_weak_efficiency(theta, p) if name == "gustafson" else _drag(name, theta, p) for p in places]
    if min(drags) <= 0.0:
        return math.inf
    return math.fsum(rest * rest for rest in _rests(name, places, means, theta))


def _rests(name: LawName, places: Sequence[float], means: Sequence[float], theta: Theta) -> list[float]:
    rate = _log_rate(name, places, means, theta)
    return [math.log(mean / _multiple(name, theta, place)) - rate for place, mean in zip(places, means, strict=True)]


def _step(name: LawName, places: Sequence[float], means: Sequence[float], theta: Theta) -> Theta:
    """Return the linear least-squares step around `theta`; columns are centered because the rate is fitted, too."""
    if name == "gustafson":
        columns = [[-(place - 1.0) / place / _weak_efficiency(theta, place) for place in places]]
    else:
        drags = [_drag(name, theta, place) for place in places]
        columns = [[-(place - 1.0) / drag for place, drag in zip(places, drags, strict=True)]]
        if name == "usl":
            columns.append([-place * (place - 1.0) / drag for place, drag in zip(places, drags, strict=True)])
    centred = [[value - math.fsum(column) / len(column) for value in column] for column in columns]
    rests = _rests(name, places, means, theta)
    sides = [_dot(column, rests) for column in centred]
    if len(centred) == 1:
        return (sides[0] / _dot(centred[0], centred[0]),)
    (a, b), c = (_dot(centred[0], column) for column in centred), _dot(centred[1], centred[1])
    scale = a * c - b * b
    return (c * sides[0] - b * sides[1]) / scale, (a * sides[1] - b * sides[0]) / scale


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))
