"""What the statistics say of made-up data, number by number.

Their coverage and their false alarms were measured (benchmarks/), which holds for this arithmetic alone: a number that
moves is told here. After a change that is meant, measure again, then write the numbers anew:

python tests/analysis/test_figures.py
"""

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from benchhouse.analysis.changes import find_changes
from benchhouse.analysis.contrast import estimate, interval, p_value
from benchhouse.analysis.online import learn, notice, watch
from benchhouse.analysis.pareto import MetricScale, Vertex, cross, drawn, gap, scale_of_level, scale_of_value
from benchhouse.analysis.saturation import peak_power_load
from benchhouse.analysis.scaling import ScalingStage, find_stop
from benchhouse.analysis.slo_search import LoadRange, RequestBatch, Search

FIGURES = Path(__file__).with_name("figures.json")

# -- histories of runs


def noise(kind: str, n: int) -> Iterator[float]:
    rng, last = random.Random(f"{kind} {n}"), 0.0
    memory = {"remembers": 0.5, "remembers much": 0.85}.get(kind, 0.0)
    for _ in range(n):
        own = rng.gauss(0.0, 0.02)
        if kind == "skewed":
            own = 0.02 * (rng.expovariate(1.0) - 1.0)
        elif kind == "outliers" and rng.random() < 0.08:
            own *= 20.0
        elif kind == "two speeds":
            own = own / 4.0 + 0.3 * (rng.random() < 0.3)
        last = memory * last + own
        yield last


LEVELS = {
    "level": lambda part: 1.0,
    "steps": lambda part: 1.1 if 0.4 <= part < 0.7 else 1.0,
    "late step": lambda part: 1.2 if part >= 0.8 else 1.0,
    "many steps": lambda part: (1.0, 1.15, 1.06, 0.9, 0.97)[int(5 * part)],
    "drift": lambda part: 1.0 + 0.2 * part,
    "drift and step": lambda part: 1.0 if part < 0.4 else 1.0 + 0.4 * (part - 0.4) if part < 0.75 else 1.3,
    "around zero": lambda part: -1.0 if part < 0.5 else 0.0,
    "from zero": lambda part: 0.0 if part < 0.5 else 2.0,
    "drift below zero": lambda part: 0.5 - part,
}
KINDS = ("normal", "skewed", "outliers", "two speeds", "remembers", "remembers much")
HISTORIES = [
    *((kind, "level", 60) for kind in KINDS),
    *((kind, level, 200) for kind in KINDS for level in ("steps", "many steps")),
    *(("normal", level, n) for level in LEVELS for n in (12, 25, 120)),
    *((kind, level, 450) for kind in ("normal", "remembers") for level in ("steps", "drift", "drift and step")),
    *(("remembers", level, 45) for level in LEVELS),
    ("exact", "steps", 40),
    ("exact", "from zero", 40),
]


def history(kind: str, level: str, n: int) -> list[float]:
    off = [0.0] * n if kind == "exact" else list(noise(kind, n))
    multiplies = min(map(LEVELS[level], (0.0, 0.3, 0.99))) > 0.0
    levels = [LEVELS[level](at / n) for at in range(n)]
    return [40.0 * (mean * (1.0 + own) if multiplies else mean + own) for mean, own in zip(levels, off, strict=True)]


def changes(kind: str, level: str, n: int) -> list[Any]:
    values = history(kind, level, n)
    baseline = learn(values[: n // 2], floor=0.02)
    told: list[Any] = [astuple(find_changes(values))]
    if baseline:
        ranks = math.fsum(rank * own for rank, own in enumerate(baseline.noise, 1))
        told += [astuple(replace(baseline, noise=())), len(baseline.noise), ranks]
        later = values[n // 2 :]
        for direction in ("lower", "higher", None):
            first, alarm = notice(baseline, later, direction), watch(baseline, later, direction, values[n // 2 - 1])
            told += [first, alarm and astuple(alarm)]
    return told


# -- the search for the highest load that keeps an SLO


def power(knee: float, share: float, slope: float, floor: float = 0.0) -> Callable[[float], float]:
    """A service whose odds of being over grow as a power of the load, on top of a floor."""

    def over(load: float) -> float:
        odds = share / (1.0 - share) * (floor + (1.0 - floor) * math.exp(min(slope * math.log(load / knee), 40.0)))
        return odds / (1.0 + odds)

    return over


SEARCHES: dict[str, tuple[list[float], dict[str, Any], list[Callable[[float], float]], float]] = {
    "gentle": ([0.05], {"first": 7.0}, [power(80.0, 0.05, 4)], 1.0),
    "usual": ([0.05], {"first": 30.0, "precision": 0.05}, [power(80.0, 0.05, 12)], 1.0),
    "steep, from above": ([0.01], {"first": 900.0, "confidence": 0.9}, [power(80.0, 0.01, 60)], 1.0),
    "with a floor": ([0.05], {"first": 50.0}, [power(80.0, 0.05, 15, 0.5)], 1.0),
    "in clumps": ([0.05], {"first": 60.0}, [power(80.0, 0.05, 12)], 30.0),
    "cliff": ([0.05], {"first": 10.0}, [lambda load: 0.0 if load <= 80.0 else 1.0], 1.0),
    "three clauses": (
        [0.01, 0.05, 0.001],
        {"first": 20.0},
        [power(120.0, 0.01, 12), power(80.0, 0.05, 12), lambda load: 0.0],
        1.0,
    ),
    "whole": ([0.05], {"first": 4.0, "loads": LoadRange(whole=True)}, [power(37.5, 0.05, 12)], 1.0),
    "all pass": ([0.05], {"first": 10.0, "loads": LoadRange(highest=60.0)}, [power(80.0, 0.05, 12)], 1.0),
    "none passes": ([0.05], {"first": 200.0, "loads": LoadRange(lowest=100.0)}, [power(80.0, 0.05, 12)], 1.0),
    "little budget": ([0.01], {"first": 10.0, "requests": 5000}, [power(80.0, 0.01, 12)], 1.0),
}


def search(name: str) -> list[Any]:
    shares, arguments, services, clump = SEARCHES[name]
    rng, told = random.Random(name), list[Any]()
    searching = Search(shares, **arguments)
    while probe := searching.next():
        a_second = max(1, round(probe.load))
        counts = [a_second] * (probe.requests // a_second) + [probe.requests % a_second]
        batches = []
        for n in filter(None, counts):
            clumps, over = max(1, round(n / clump)), [service(probe.load) for service in services]
            draws = [sum(rng.random() < share for _ in range(clumps)) for share in over]
            batches.append(RequestBatch(n, tuple(min(n, round(clump * count)) for count in draws)))
        searching.tell(probe.load, batches, 0.97 * probe.load, latency_s=1.0 / max(1.0, 130.0 - probe.load))
        told.append(astuple(probe))
    found = searching.result()
    return [told, astuple(found), peak_power_load(found.curve)]


# -- where growth stops, and where a trade-off crosses a level

CURVES: dict[str, Callable[[float], float]] = {
    "a sharp bend": lambda place: 1000.0 * min(place, 12.0),
    "a fall after the peak": lambda place: 1000.0 * place / (1.0 + 0.03 * (place - 1.0) + 0.001 * place * (place - 1)),
    "slow saturation": lambda place: 12000.0 * (1.0 - math.exp(-place / 9.0)),
    "growth": lambda place: 100.0 * place**0.8,
    "nothing": lambda place: 100.0,
}


def stop(name: str, n: int, spread: float) -> list[Any]:
    rng = random.Random(f"{name} {n} {spread}")
    stages = [
        ScalingStage(float(place), [CURVES[name](place) * (1.0 + spread * rng.gauss(0.0, 1.0)) for _ in range(n)])
        for place in (1, 2, 4, 8, 16, 32, 64)
    ]
    found = find_stop(stages, seed=1)
    return [found and astuple(found)]


def trade_off(n: int, spread: float, direction: str, level: float) -> list[Any]:
    rng = random.Random(f"{n} {spread} {direction} {level}")
    told: list[Any] = []
    sides = []
    for faster in (1.0, 1.3):
        knots = [
            Vertex(
                float(ef),
                [min(1.0, 1.0 - 0.26 * (16.0 / ef) ** 0.9 + spread * rng.gauss(0.0, 1.0)) for _ in range(n)],
                [faster * 1e6 / (30.0 + ef) * (1.0 + 5.0 * spread * rng.gauss(0.0, 1.0)) for _ in range(n)],
            )
            for ef in (256, 16, 32, 128, 64)
        ]
        x_scale = scale_of_level([x for knot in knots for x in knot.x], direction, level)
        y_scale = scale_of_value([y for knot in knots for y in knot.y])
        crossing = cross(knots, level, x_scale=x_scale, y_scale=y_scale, direction=direction, seed=1)
        told += [astuple(crossing), drawn(knots, x_scale, y_scale, steps=3)]
        sides.append(crossing)
    if sides[0].bent and sides[1].bent:
        told += [astuple(gap(*sides, scale, "lower", seed=1)) for scale in (MetricScale("log"), MetricScale("linear"))]
    return told


def contrast(n: int) -> list[Any]:
    rng = random.Random(n)
    samples = [([rng.gauss(5.0, 1.0) for _ in range(n)], [rng.gauss(2.0, 0.3) for _ in range(n)]) for _ in range(3)]
    found = estimate(lambda means: means[0] / means[1] - means[2] * means[3] ** 2, samples)
    return [astuple(found), found.n, found.df, found.error, interval(found, confidence=0.9, seed=1), p_value(found)]


CASES: dict[str, Callable[[], list[Any]]] = {
    **{f"changes: {kind}, {level}, {n}": lambda a=(kind, level, n): changes(*a) for kind, level, n in HISTORIES},
    **{f"search: {name}": lambda name=name: search(name) for name in SEARCHES},
    **{
        f"stop: {name}, {n} with {spread}": lambda a=(name, n, spread): stop(*a)
        for name in CURVES
        for n, spread in ((1, 0.0), (3, 0.01), (4, 0.08))
    },
    **{
        f"trade-off: {n} with {spread}, {direction}, {level}": lambda a=(n, spread, direction, level): trade_off(*a)
        for n, spread in ((1, 0.0), (3, 0.001), (4, 0.02))
        for direction, level in (("higher", 0.95), ("lower", 0.9), ("higher", 0.99999))
    },
    **{f"contrast: {n}": lambda n=n: contrast(n) for n in (2, 3, 4)},
}


def flat(item: Any) -> Iterator[Any]:
    if isinstance(item, list | tuple):
        yield len(item)
        for part in item:
            yield from flat(part)
    else:
        yield float(f"{item:.9g}") if isinstance(item, float) else item


SEARCH_CASES = [name for name in CASES if name.startswith("search")]  # each takes longer than all cases of other kinds


@pytest.mark.parametrize("kind", ["changes", *SEARCH_CASES, "stop", "trade-off", "contrast"])
def test_figures_are_those_that_were_recorded(kind):
    figures = json.loads(FIGURES.read_text())
    names = [name for name in CASES if name.startswith(kind)]
    assert names
    for name in names:
        expected = [
            pytest.approx(item, rel=1e-6, abs=1e-8) if isinstance(item, float) else item for item in figures[name]
        ]
        assert list(flat(CASES[name]())) == expected, name


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(list(flat(case())))}" for name, case in CASES.items()]
    FIGURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
