"""How often do the intervals of `bench compare --at` and `--along` cover the truth? Planted curves with noise.

    python benchmarks/tradeoff_coverage.py --runs 1000

Exits 1 when an interval covers less than 90 of 100 truths, or an estimate at equal recall is off by more than 0.5% and
three standard errors of what was simulated.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable

import numpy as np

from benchhouse.analysis.pareto import Vertex, cross, scale_of_level, scale_of_value
from benchhouse.analysis.scaling import ScalingStage, find_stop

Curve = Callable[[float], float]
EFS, LOADS = (16, 32, 64, 128, 256), (1, 2, 4, 8, 16, 32, 64)
TRADEOFFS: dict[str, tuple[Curve, Curve]] = {
    "near a power law": (
        lambda ef: 1.0 - 0.262 * (ef / 16) ** (-0.7 - 0.07 * math.log(ef / 16)),
        lambda ef: 1e6 / (30 + ef),
    ),
    "exponential": (lambda ef: 1.0 - math.exp(-0.385 * ef**0.45), lambda ef: 1e6 / (20 + ef**1.05)),
}
NOISES = ((0.0, 0.03, 0.95), (0.002, 0.03, 0.95), (0.01, 0.05, 0.93), (0.03, 0.05, 0.93), (0.0, 0.4, 0.95))
SCALINGS: dict[str, Curve] = {
    "sharp bend at 12": lambda load: 1000.0 * min(load, 12),
    "sharp bend at 20": lambda load: 1000.0 * min(load, 20),
    "contention, falls": lambda load: 1000.0 * load / (1 + 0.03 * (load - 1) + 0.001 * load * (load - 1)),
    "slow saturation": lambda load: 12000.0 * (1 - math.exp(-load / 9)),
}
BAR, LARGEST_BIAS = 90.0, 0.5


def tradeoff(name: str, n: int, noise: tuple[float, float, float], runs: int, seed: int) -> dict[str, object]:
    recall, qps = TRADEOFFS[name]
    spread_x, spread_y, level = noise
    low, high = float(EFS[0]), float(EFS[-1])
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if recall(middle) < level else (low, middle)
    truth, source = qps(low), np.random.default_rng([seed, n])
    covered, met, errors = 0, 0, []
    for run in range(runs):
        knots = []
        for ef in EFS:
            x = np.clip(source.normal(recall(ef), spread_x, n), 0.0, 1.0)
            y = qps(ef) * np.exp(source.normal(-(spread_y**2) / 2, spread_y, n))
            knots.append(Vertex(ef, x.tolist(), y.tolist()))
        found = cross(
            knots,
            level,
            x_scale=scale_of_level([x for knot in knots for x in knot.x], "higher", level),
            y_scale=scale_of_value([y for knot in knots for y in knot.y]),
            direction="higher",
            seed=run,
        )
        if found.value is not None and found.interval:
            met += 1
            covered += found.interval.covers(truth)
            errors.append(found.value / truth - 1.0)
    return {
        "curve": name, "n": n, "recall_stdev": spread_x, "qps_cv": spread_y, "runs": met,
        "covered_percent": 100.0 * covered / met, "bias_percent": 100.0 * float(np.mean(errors)),
        "bias_error": 100.0 * float(np.std(errors)) / math.sqrt(met),
    }  # fmt: skip


def stop(name: str, n: int, spread: float, runs: int, seed: int) -> dict[str, object]:
    curve, fine = SCALINGS[name], [64 ** (at / 4000) for at in range(4001)]
    truth = next(load for load in fine if curve(load) >= 0.95 * max(map(curve, fine)))
    source = np.random.default_rng([seed, n])
    stopped, covered, middles = 0, 0, []
    for run in range(runs):
        stages = [ScalingStage(load, (curve(load) * source.normal(1.0, spread, n)).tolist()) for load in LOADS]
        found = find_stop(stages, seed=run)
        if found and found.interval and found.at:
            stopped += 1
            covered += found.interval.covers(truth)
            middles.append(found.at)
    return {
        "curve": name, "n": n, "cv": spread, "truth": truth, "said_to_stop": stopped, "runs": runs,
        "covered_percent": 100.0 * covered / max(stopped, 1), "median": float(np.median(middles)),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    levels = [
        tradeoff(name, n, noise, given.runs, given.seed) for name in TRADEOFFS for n in (3, 5, 10) for noise in NOISES
    ]
    stops = [
        stop(name, n, spread, given.runs, given.seed)
        for name in SCALINGS
        for n in (3, 5, 10)
        for spread in (0.01, 0.03, 0.08)
    ]
    missed = [row for row in levels if _uncovered(row) or _biased(row)] + [row for row in stops if _uncovered(row)]
    if given.json:
        print(json.dumps({"at_level": levels, "stops": stops, "missed": missed}, indent=1))
    else:
        for row in (*levels, *stops):
            print(
                "  ".join(
                    f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()
                )
            )
        print(f"{len(missed)} of {len(levels) + len(stops)} below the bars")
    return 1 if missed else 0


def _uncovered(row: dict[str, object]) -> bool:
    return float(str(row["covered_percent"])) < BAR


def _biased(row: dict[str, object]) -> bool:
    return abs(float(str(row["bias_percent"]))) > LARGEST_BIAS + 3.0 * float(str(row["bias_error"]))


if __name__ == "__main__":
    sys.exit(main())
