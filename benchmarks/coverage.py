"""Measure how often the intervals of `compare` and of a mean cover the truth, and exit 1 when they miss the bars.

Also of samples that ended by the rule `until: {ci: ...}`, how often equal things look different (400 A/A pairs, boards
of ten, sides that ran one after the other with noise that remembers), and whether samples that no interval fits say so.

python benchmarks/coverage.py
python benchmarks/coverage.py --runs 10000 --seed 7
python benchmarks/coverage.py --json > coverage.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchhouse.analysis.compare import SMALLEST_RESAMPLED, Pair, compare_many
from benchhouse.analysis.interval_checks import doubt
from benchhouse.analysis.memory import memory_of
from benchhouse.analysis.ranking import rank_targets
from benchhouse.analysis.selftest import exact_interval
from benchhouse.analysis.stopping import enough, widened
from benchhouse.analysis.summary import summarise
from benchhouse.results.numbers import mean_interval

Shape = Literal["gauss", "lognormal", "t3", "exponential"]
SIZES = (3, 4, 5, 8, 10, 30)
RATIOS = (1.0, 0.5)
MOST = 30  # repetitions, where a rule ends them
STOPPED: tuple[tuple[Shape, float], ...] = (
    ("gauss", 0.03), ("gauss", 0.05), ("lognormal", 0.05), ("lognormal", 0.10), ("t3", 0.04),
)  # fmt: skip
_BATCH = 100  # comparisons that share one set of resamples, as they would in one report


@dataclass(frozen=True)
class Scenario:
    """Both sides have the same shape; `cv_a` and `cv_b` are their spreads relative to their means."""

    shape: Shape
    cv_a: float
    cv_b: float


SCENARIOS = (
    Scenario("gauss", 0.02, 0.02),
    Scenario("gauss", 0.10, 0.10),
    Scenario("gauss", 0.02, 0.10),
    Scenario("lognormal", 0.10, 0.10),
    Scenario("lognormal", 0.30, 0.30),
    Scenario("lognormal", 0.10, 0.30),
    Scenario("t3", 0.05, 0.05),
    Scenario("t3", 0.02, 0.10),
    Scenario("lognormal", 0.53, 0.53),  # a deviation of 0.5 of the logarithms
    Scenario("exponential", 1.0, 1.0),
)
MEANS: tuple[tuple[Shape, float], ...] = (
    ("gauss", 0.10), ("lognormal", 0.10), ("lognormal", 0.30), ("lognormal", 0.53), ("exponential", 1.0), ("t3", 0.10),
)  # fmt: skip
HISTORY = 30  # earlier values that say whether noise lasts
FAR_MODE = 1.5


@dataclass(frozen=True)
class Measured:
    """Coverage is a fraction of `runs`; `ratio` is the true mean of B over that of A."""

    shape: str
    cv_a: float
    cv_b: float
    n: int
    ratio: float
    runs: int
    difference: float
    change: float
    lowest_allowed: float
    highest_allowed: float

    @property
    def passed(self) -> bool:
        return all(self.lowest_allowed <= cover <= self.highest_allowed for cover in (self.difference, self.change))


def measure(scenario: Scenario, n: int, ratio: float, runs: int, seed: int) -> Measured:
    generator = np.random.default_rng([seed, n, SCENARIOS.index(scenario)])
    hits_difference = hits_change = 0
    for start in range(0, runs, _BATCH):
        size = min(_BATCH, runs - start)
        a = _draw(generator, scenario.shape, scenario.cv_a, size, n)
        b = _draw(generator, scenario.shape, scenario.cv_b, size, n) * ratio
        pairs = [Pair(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        for result in compare_many(pairs, seed=seed + start):
            absolute, relative = result.difference_interval, result.change_interval
            covered = absolute is not None and absolute.covers(ratio - 1.0)
            hits_difference += covered
            # A heavy tail may draw a value below zero, where only the difference has an interval.
            hits_change += relative.covers(ratio - 1.0) if relative is not None else covered
    low, high = bars(n)
    cover = hits_difference / runs, hits_change / runs
    return Measured(scenario.shape, scenario.cv_a, scenario.cv_b, n, ratio, runs, *cover, low, high)


def bars(n: int) -> tuple[float, float]:
    """The lowest and highest coverage that a 95% interval may have."""
    if n < SMALLEST_RESAMPLED:  # so few values don't tell a heavy tail from none: Welch's t then covers up to 97.4%
        return 0.92, 1.0
    return 0.93, 0.97


def measure_all(runs: int, seed: int, sizes: Sequence[int] = SIZES) -> Iterator[Measured]:
    for ratio in RATIOS:
        for scenario in SCENARIOS:
            for n in sizes:
                yield measure(scenario, n, ratio, runs, seed)


@dataclass(frozen=True)
class Stopped:
    """Coverage of the change of samples that ended by a rule; `n` is how many repetitions that took, on average."""

    shape: str
    cv: float
    ci: float
    runs: int
    n: float
    change: float
    lowest_allowed: float
    highest_allowed: float

    @property
    def passed(self) -> bool:
        return self.lowest_allowed <= self.change <= self.highest_allowed


def measure_stopped(shape: Shape, cv: float, ci: float, runs: int, seed: int) -> Stopped:
    generator = np.random.default_rng([seed, 99, int(cv * 1000), int(ci * 1000)])
    hits, lengths = 0, 0
    for start in range(0, runs, _BATCH):
        size = min(_BATCH, runs - start)
        sides = [_draw(generator, shape, cv, size, MOST).tolist() for _ in range(2)]
        pairs = [Pair(_until(x, ci), _until(y, ci)) for x, y in zip(*sides, strict=True)]
        lengths += sum(len(pair.a) + len(pair.b) for pair in pairs)
        for result in compare_many(pairs, seed=seed + start, confidence=widened(0.95)):
            interval = result.change_interval or result.difference_interval
            hits += interval is not None and interval.covers(0.0)
    low, high = 0.93, 0.97
    return Stopped(shape, cv, ci, runs, lengths / runs / 2, hits / runs, low, high)


@dataclass(frozen=True)
class Share:
    """Of intervals that cover, or of equal things that look different."""

    what: str
    n: int
    runs: int
    share: float
    lowest_allowed: float
    highest_allowed: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.lowest_allowed <= self.share <= self.highest_allowed


def measure_mean(shape: Shape, cv: float, n: int, runs: int, seed: int) -> Share:
    """Of the interval of one mean, as reports and whiskers have it."""
    generator = np.random.default_rng([seed, n, int(cv * 1000), 1])
    hits = sum(_covers(values, 1.0) for values in _draw(generator, shape, cv, runs, n).tolist())
    return Share(f"mean, {shape} {cv:.0%}", n, runs, hits / runs, *bars(n))


def measure_rounded(step: float, n: int, runs: int, seed: int) -> Share:
    """Values rounded to so many of their deviations: of those that don't doubt themselves, how many cover."""
    generator = np.random.default_rng([seed, n, int(step * 10), 2])
    truths = 40.0 + step * generator.random(runs)
    drawn = np.round((truths[:, None] + generator.standard_normal((runs, n))) / step) * step
    return _undoubted(f"mean, rounded to {step:g} deviations", drawn.tolist(), truths.tolist())


def measure_modes(slow: float, n: int, runs: int, seed: int) -> Share:
    """Two far modes: the same, of the samples that have values of both. One mode alone is beyond any sample."""
    generator = np.random.default_rng([seed, n, int(slow * 10), 3])
    chosen = generator.random((runs, n)) < slow
    drawn = np.where(chosen, FAR_MODE, 1.0) * (1.0 + 0.03 * generator.standard_normal((runs, n)))
    both = chosen.any(axis=1) & ~chosen.all(axis=1)
    truths = [1.0 + slow * (FAR_MODE - 1.0)] * int(both.sum())
    found = _undoubted(f"mean, two modes {slow:.0%}", drawn[both].tolist(), truths)
    return replace(found, note=f"{found.note}, {1.0 - both.mean():.0%} in one mode", highest_allowed=1.0)


def _undoubted(what: str, samples: Sequence[list[float]], truths: Sequence[float]) -> Share:
    equal = sum(len(set(values)) == 1 for values in samples)
    clear = [(x, truth) for x, truth in zip(samples, truths, strict=True) if len(set(x)) > 1 and not doubt(x)]
    hits, total = sum(_covers(values, truth) for values, truth in clear), len(samples)
    note = f"{1.0 - (equal + len(clear)) / total:.0%} doubted, {equal / total:.0%} without spread"
    # All of them doubted is as good as it gets.
    return Share(what, len(samples[0]), len(clear), hits / len(clear) if clear else 1.0, bars(5)[0], 1.0, note)


def _covers(values: list[float], truth: float) -> bool:
    known = summarise(values)
    interval = mean_interval(known.mean, known.stdev, known.n, known.min)
    return interval is not None and interval[0] <= truth <= interval[1]


def measure_lasting(memory: float, n: int, runs: int, seed: int) -> Share:
    """A/A, one side after the other, in noise that remembers so much, with a history before them."""
    generator = np.random.default_rng([seed, n, int(memory * 10), 4])
    noise = generator.standard_normal((runs, HISTORY + 2 * n))
    for at in range(1, noise.shape[1]):
        noise[:, at] = memory * noise[:, at - 1] + np.sqrt(1.0 - memory**2) * noise[:, at]
    wrong = wider = 0
    for start in range(0, runs, _BATCH):
        rows = (1.0 + 0.05 * noise[start : start + _BATCH]).tolist()
        sides = [(row[HISTORY : HISTORY + n], row[HISTORY + n :]) for row in rows]
        found = [memory_of([row[:HISTORY]], own) or 0.0 for row, own in zip(rows, sides, strict=True)]
        pairs = [Pair(a, b, None, known) for (a, b), known in zip(sides, found, strict=True)]
        wrong += sum(result.verdict == "different" for result in compare_many(pairs, seed=seed + start))
        wider += sum(known > 0.0 for known in found)
    note = f"{wider / runs:.0%} widened"
    return Share(f"different, A then B, memory {memory:g}", n, runs, wrong / runs, 0.0, 0.06, note)


def measure_boards(shape: Shape, n: int, boards: int, seed: int) -> Share:
    """Ten equal targets: boards on which any is told from another."""
    generator = np.random.default_rng([seed, n, 5])
    wrong = 0
    for _ in range(boards):
        drawn = _draw(generator, shape, 0.1, 10, n).tolist()
        wrong += any(item.rank != 1 for item in rank_targets({str(at): x for at, x in enumerate(drawn)}, "lower"))
    return Share(f"boards of ten, {shape}", n, boards, wrong / boards, 0.0, 0.05)


def measure_others(runs: int, seed: int) -> Iterator[Share]:
    for shape, cv in MEANS:
        yield from (measure_mean(shape, cv, n, runs, seed) for n in SIZES)
    for n in (3, 5, 10):
        yield from (measure_rounded(step, n, runs, seed) for step in (1.0, 2.0, 3.0, 4.0))
        yield from (measure_modes(slow, n, runs, seed) for slow in (0.2, 0.5))
    for memory in (0.0, 0.5):
        yield from (measure_lasting(memory, n, runs, seed) for n in (5, 10))
    for shape in ("gauss", "exponential"):
        yield from (measure_boards(shape, n, runs // 4, seed) for n in (3, 5, 10))


def _until(values: Sequence[float], ci: float) -> Sequence[float]:
    count = next(at for at in range(MOST + 1) if enough(values, MOST, at, ci, 5, MOST))
    return values[:count]


def alike(seed: int, pairs: int = 400, n: int = 5) -> tuple[int, tuple[float, float]]:
    """How many of so many A/A pairs look different, and the exact interval of their rate."""
    generator = np.random.default_rng([seed, 400])
    wrong = 0
    for start in range(0, pairs, _BATCH):
        a, b = (_draw(generator, "lognormal", 0.05, _BATCH, n).tolist() for _ in range(2))
        asked = [Pair(x, y) for x, y in zip(a, b, strict=True)]
        wrong += sum(r.verdict != "no evidence of a difference" for r in compare_many(asked, seed=seed + start))
    return wrong, exact_interval(wrong, pairs)


def _draw(generator: np.random.Generator, shape: Shape, cv: float, rows: int, n: int) -> NDArray[np.float64]:
    """Samples with mean 1 and the given coefficient of variation (1 for exponential ones)."""
    if shape == "exponential":
        return generator.exponential(1.0, (rows, n))
    if shape == "lognormal":
        sigma = np.sqrt(np.log1p(cv * cv))
        drawn: NDArray[np.float64] = np.exp(sigma * generator.standard_normal((rows, n)) - sigma * sigma / 2.0)
        return drawn
    unit = generator.standard_normal((rows, n)) if shape == "gauss" else generator.standard_t(3, (rows, n)) / np.sqrt(3)
    return 1.0 + cv * unit


def _print_table(results: Sequence[Measured]) -> None:
    print(f"{'shape':<10}{'cv A':>6}{'cv B':>6}{'B/A':>6}{'n':>4}{'difference':>12}{'change':>9}  bars")
    for row in results:
        flag = "" if row.passed else "  MISSED"
        spread = f"{row.cv_a:>6.0%}{row.cv_b:>6.0%}{row.ratio:>6g}{row.n:>4}"
        cover = f"{row.difference:>12.1%}{row.change:>9.1%}"
        print(f"{row.shape:<10}{spread}{cover}  {row.lowest_allowed:.0%}-{row.highest_allowed:.0%}{flag}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="comparisons for each row (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of data and resamples (default 1)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    results = []
    for row in measure_all(options.runs, options.seed):
        results.append(row)
        print(f"\r{len(results)}/{len(RATIOS) * len(SCENARIOS) * len(SIZES)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    stopped = [measure_stopped(*of, ci, options.runs, options.seed) for of in STOPPED for ci in (0.02, 0.05)]
    others = list(measure_others(options.runs, options.seed))
    wrong, (low, high) = alike(options.seed)
    covers = low <= 0.05 <= high
    if options.json:
        everything = [asdict(row) | {"passed": row.passed} for row in results]
        everything += [asdict(item) | {"passed": item.passed} for item in stopped]
        everything += [asdict(item) | {"passed": item.passed} for item in others]
        print(json.dumps({"cells": everything, "alike": {"wrong": wrong, "low": low, "high": high}}, indent=1))
    else:
        _print_table(results)
        for item in stopped:
            flag = "" if item.passed else "  MISSED"
            print(f"{item.shape:<10}{item.cv:>6.0%} until {item.ci:.0%}, n {item.n:>4.1f}: {item.change:.1%}{flag}")
        for share in others:
            flag = "" if share.passed else "  MISSED"
            allowed = f"{share.lowest_allowed:.0%}-{share.highest_allowed:.0%}"
            print(f"{share.what:<38}{share.n:>4}{share.share:>8.1%}  {allowed:<9} {share.note}{flag}")
        print(f"A/A: {wrong} of 400 look different, 95% interval {low:.1%} to {high:.1%}{'' if covers else '  MISSED'}")
    good = covers and all(row.passed for row in results) and all(item.passed for item in stopped)
    good = good and all(share.passed for share in others)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
