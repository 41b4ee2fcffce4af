"""How often do the intervals of scaling laws cover the truth, and how far are they from scipy's fit? Planted curves.

    python benchmarks/scaling_fit.py --runs 2000
    uv run --with scipy python benchmarks/scaling_fit.py     # with the peer

Exits 1 when a 95% interval covers less than 93 or more than 97 of 100 truths, or a parameter is further from that of
`scipy.optimize.curve_fit` on the same points than a thousandth of its own interval.
"""

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchhouse.analysis.scaling import ScalingStage
from benchhouse.analysis.scaling_laws import LawName, fit

FORMS: dict[str, Callable[..., Any]] = {
    "amdahl": lambda n, s: n / (1 + s * (n - 1)),
    "gustafson": lambda n, s: n - s * (n - 1),
    "usl": lambda n, sigma, kappa: n / (1 + sigma * (n - 1) + kappa * n * (n - 1)),
}
PLANTED: list[tuple[LawName, dict[str, float], tuple[int, ...]]] = [
    ("amdahl", {"s": 0.05}, (1, 2, 4)),
    ("amdahl", {"s": 0.05}, (1, 2, 4, 8, 16)),
    ("amdahl", {"s": 0.0}, (1, 2, 4, 8)),
    ("gustafson", {"s": 0.1}, (1, 2, 4, 8, 16)),
    ("usl", {"sigma": 0.03, "kappa": 0.001}, (1, 2, 4, 8, 16, 32)),
    ("usl", {"sigma": 0.1, "kappa": 0.02}, (1, 2, 4, 8)),
]
LOWEST, HIGHEST, LARGEST_DISTANCE = 93.0, 97.0, 1e-3
PEER_RUNS = 50


def cell(name: LawName, truth: dict[str, float], places: tuple[int, ...], n: int, spread: float, runs: int,
         seed: int) -> dict[str, Any]:  # fmt: skip
    source = np.random.default_rng([seed, n])
    covered, distance = dict.fromkeys(truth, 0), 0.0
    for run in range(runs):
        samples = [
            (100.0 * FORMS[name](place, **truth) * np.exp(source.normal(0.0, spread, n))).tolist() for place in places
        ]
        law = fit(name, [ScalingStage(*pair) for pair in zip(places, samples, strict=True)], seed=run)
        assert law
        for key, value in truth.items():
            interval = law.parameters[key].interval
            covered[key] += bool(interval and interval.covers(value))
        if run < PEER_RUNS and HAS_SCIPY:
            peer = by_scipy(name, places, samples, list(truth.values()))
            for own, other in zip(law.parameters.values(), peer, strict=True):
                assert own.interval
                distance = max(distance, abs(own.value - other) / (own.interval.hi - own.interval.lo))
    percents = {key: 100.0 * count / runs for key, count in covered.items()}
    # two standard errors of what was simulated, and nothing where there were enough runs
    room = 2 * math.sqrt(95.0 * 5.0 / runs) if runs < 1000 else 0.0
    held = all(LOWEST - room <= percent <= HIGHEST + room for percent in percents.values())
    return {
        "law": name, "truth": truth, "places": places, "n": n, "spread": spread, "covered_percent": percents,
        "from_scipy_in_intervals": distance if HAS_SCIPY else None, "held": held and distance <= LARGEST_DISTANCE,
    }  # fmt: skip


HAS_SCIPY = importlib.util.find_spec("scipy") is not None


def by_scipy(name: str, places: Sequence[int], samples: Sequence[Sequence[float]], start: list[float]) -> list[float]:
    from scipy.optimize import curve_fit  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def law(n: Any, log_rate: float, *theta: float) -> Any:
        return log_rate + np.log(FORMS[name](n, *theta))

    means = np.log([sum(values) / len(values) for values in samples])
    found, _ = curve_fit(law, np.array(places, float), means, p0=[means[0], *start], xtol=1e-14, ftol=1e-14)
    return [float(value) for value in found[1:]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [
        cell(*planted, n, spread, given.runs, given.seed)
        for planted in PLANTED
        for n, spread in ((3, 0.03), (5, 0.03), (10, 0.01))
    ]
    missed = [row for row in rows if not row["held"]]
    if given.json:
        print(json.dumps({"cells": rows, "missed": missed, "scipy": HAS_SCIPY}, indent=1))
    else:
        for row in rows:
            percents = ", ".join(f"{key} {value:.1f}%" for key, value in row["covered_percent"].items())
            peer = "" if not HAS_SCIPY else f"  from scipy {row['from_scipy_in_intervals']:.1e} of an interval"
            named = f"{row['law']:9} {row['truth']} at {row['places']} n {row['n']} spread {row['spread']:.0%}"
            print(f"{named}  covered {percents}{peer}{'' if row['held'] else '  MISSED'}")
        print("" if HAS_SCIPY else "scipy is not installed: no peer\n", end="")
        print(f"{len(missed)} of {len(rows)} outside of the bars")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
