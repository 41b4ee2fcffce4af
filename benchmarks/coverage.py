"""Measure how often the intervals of `compare` cover the truth, and exit 1 when they miss the bars.

python benchmarks/coverage.py
python benchmarks/coverage.py --runs 10000 --seed 7
python benchmarks/coverage.py --json > coverage.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchhouse.analysis.compare import SMALLEST_RESAMPLED, Pair, compare_many

Shape = Literal["gauss", "lognormal", "t3"]
SIZES = (3, 4, 5, 8, 10, 30)
RATIOS = (1.0, 0.5)
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
)


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
    low, high = bars(scenario.shape, n)
    cover = hits_difference / runs, hits_change / runs
    return Measured(scenario.shape, scenario.cv_a, scenario.cv_b, n, ratio, runs, *cover, low, high)


def bars(shape: Shape, n: int) -> tuple[float, float]:
    """The lowest and highest coverage that a 95% interval may have."""
    if shape == "t3":
        return 0.91, 1.0
    return (0.93, 0.97) if n >= SMALLEST_RESAMPLED else (0.92, 1.0)


def measure_all(runs: int, seed: int, sizes: Sequence[int] = SIZES) -> Iterator[Measured]:
    for ratio in RATIOS:
        for scenario in SCENARIOS:
            for n in sizes:
                yield measure(scenario, n, ratio, runs, seed)


def _draw(generator: np.random.Generator, shape: Shape, cv: float, rows: int, n: int) -> NDArray[np.float64]:
    """Samples with mean 1 and the given coefficient of variation."""
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
    if options.json:
        print(json.dumps([asdict(row) | {"passed": row.passed} for row in results], indent=1))
    else:
        _print_table(results)
    return 0 if all(row.passed for row in results) else 1


if __name__ == "__main__":
    sys.exit(main())
