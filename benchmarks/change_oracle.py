"""The best that any detector could do in noise that remembers: one that knows all but where the changes are.

It knows that the noise is AR(1) with phi 0.5 and its deviation, the size of the steps and the level at the beginning.
Places: the probability of a change near each run, by forward and backward recursion over the levels; those above a
threshold are told that gives 0.5 false alarms per 1000 runs of histories without a change.

Alarms after a step for the worse, by the false alarms that are allowed: the median delay that no rule can beat, and the
one that a simple rule has (1 is the first run of the new level). No rule: an alarm within k runs of a step is decided
by these k runs and what came before, so it is a test of step against none, and of those that err in a share k * r (r
false alarms a run) none finds more steps than the likelihood ratio does (Neyman and Pearson). The simple rule looks at
the likelihood ratio of the last k runs alone, k the best for that rate, with a threshold that was simulated.

    python benchmarks/change_oracle.py [--histories 300] [--seed 2026] [--json]

It has no bar: `change_points.py` has them, and this says which of them can be held in that noise at all.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from statistics import NormalDist

import numpy as np
from change_points import APART, MOST_FALSE, NEAR, SPREAD, Score, history
from numpy.typing import NDArray

PHI = 0.5
SHOCK = SPREAD * math.sqrt(1.0 - PHI * PHI)
HAZARD, LEVELS = 0.01, 7  # changes a run, levels either way
RATES = (0.05, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)  # false alarms per 1000 runs
BEFORE, WINDOWS, LONGEST = 20, 6, 100
NORMAL = NormalDist()
Matrix = NDArray[np.float64]


def changing(logs: Matrix, step: float) -> Matrix:
    """The probability that the level changes at each run, a row a history."""
    rows, n = logs.shape
    off = logs[:, :, None] - np.arange(-LEVELS, LEVELS + 1) * math.log1p(step)
    moves = {0: 1.0 - HAZARD, 1: HAZARD / 2.0, -1: HAZARD / 2.0}
    now = np.zeros(off[:, 0].shape)
    now[:, LEVELS] = 1.0
    forward, factors = [now], []
    for at in range(1, n):
        fits = {by: -((off[:, at] - PHI * np.roll(off[:, at - 1], by, 1)) ** 2) / (2 * SHOCK * SHOCK) for by in moves}
        top = np.max([fit.max(1) for fit in fits.values()], axis=0)[:, None]
        weights = {by: moves[by] * np.exp(fit - top) for by, fit in fits.items()}
        weights[1][:, 0] = weights[-1][:, -1] = 0.0
        now = sum((weight * np.roll(now, by, 1) for by, weight in weights.items()), np.zeros(now.shape))
        total = now.sum(1)[:, None]
        now = now / total
        forward.append(now)
        factors.append({by: weight / total for by, weight in weights.items()})
    backward, found = np.ones(now.shape), np.zeros((rows, n))
    for at in range(n - 1, 0, -1):
        back = {by: weight * backward for by, weight in factors[at - 1].items()}
        found[:, at] = sum((np.roll(forward[at - 1], by, 1) * back[by]).sum(1) for by in (1, -1))
        backward = sum((np.roll(part, -by, 1) for by, part in back.items()), np.zeros(now.shape))
    return found


def peaks(chances: NDArray[np.float64]) -> list[tuple[float, int]]:
    """Places at least APART from each other, with the probability of a change near them."""
    near, found = np.convolve(chances, np.ones(2 * NEAR + 1), "same"), []
    while near.max() > 0.02:
        at = int((near + 1e-9 * chances).argmax())
        found.append((float(near[at]), at))
        near[max(0, at - APART + 1) : at + APART] = 0.0
    return found


def places(n: int, step: float, histories: int, seed: int) -> Score:
    def told(true_step: float) -> list[tuple[list[tuple[float, int]], list[int]]]:
        made = [history("ar1", n, true_step, seed, number) for number in range(histories)]
        chances = changing(np.log(np.array([values for values, _ in made])), step)
        return [(peaks(row), true) for row, (_, true) in zip(chances, made, strict=True)]

    false = sorted((chance for found, _ in told(0.0) for chance, _ in found), reverse=True)
    allowed = int(MOST_FALSE * histories * n / 1000)
    threshold = false[allowed] if allowed < len(false) else 0.0
    score = Score()
    for found, true in told(step):
        score.add([at for chance, at in found if chance > threshold], true, 0.0)
    return score


def strength(step: float, runs: int) -> float:
    """Standard deviations by which `runs` runs of a new level differ from the old: the first tells most."""
    return step / SHOCK * math.sqrt(1.0 + (runs - 1) * (1.0 - PHI) ** 2)


def least_delay(step: float, rate: float) -> int:
    """The median that no rule can beat which has `rate` false alarms per 1000 runs."""
    return next(runs for runs in range(1, LONGEST) if runs * rate / 1000.0 >= NORMAL.cdf(-strength(step, runs)))


def draw(tries: int, seed: int, step: float, later: int = 200) -> Matrix:
    """Runs of AR(1) noise about a level of zero, a row a try; the step comes at BEFORE."""
    rng = np.random.default_rng([seed, 11])
    noise = np.empty((tries, later))
    noise[:, 0] = rng.standard_normal(tries)
    for at in range(1, later):
        noise[:, at] = PHI * noise[:, at - 1] + rng.standard_normal(tries) * math.sqrt(1.0 - PHI * PHI)
    values = SPREAD * noise
    values[:, BEFORE:] += step
    return values


def tell(values: Matrix, runs: int) -> Matrix:
    """At each run from the `runs`-th on: how far the last `runs` are from no step, in standard deviations."""
    shocks = (values[:, 1:] - PHI * values[:, :-1]) / SHOCK
    weights = np.array([1.0, *[1.0 - PHI] * (runs - 1)])
    weights /= np.sqrt((weights**2).sum())
    told: Matrix = np.lib.stride_tricks.sliding_window_view(shocks, runs, axis=1) @ weights
    return told


def limit_for(quiet: Matrix, rate: float) -> float:
    """The limit that the first alarms of quiet rows cross `rate` times per 1000 runs."""
    highest = np.maximum.accumulate(quiet, axis=1)

    def false(limit: float) -> float:
        over = highest >= limit
        watched = np.where(over[:, -1], over.argmax(1) + 1, quiet.shape[1])
        return float(over[:, -1].sum() / watched.sum() * 1000)

    low, high = 0.0, 10.0
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if false(middle) > rate else (low, middle)
    return high


def alarms(step: float, tries: int, seed: int) -> list[dict[str, float]]:
    """For each rate of false alarms: the least median delay there is, and that of the best single window."""
    quiet, moved = draw(tries, seed, 0.0), draw(tries, seed + 1, step)
    rows = []
    for rate in RATES:
        reached = []
        for runs in range(1, WINDOWS + 1):
            first = BEFORE - runs  # of the window that ends with the first run of the new level
            over = tell(moved, runs)[:, first:] >= limit_for(tell(quiet, runs), rate)
            reached.append(float(np.median(np.where(over.any(1), over.argmax(1) + 1, LONGEST))))
        rows.append({"false_per_1000": rate, "least": least_delay(step, rate), "reached": min(reached)})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300, help="of 200 runs; a fifth as many of 1000")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for n in (200, 1000):
        for step in (0.02, 0.05):
            found = places(n, step, max(1, options.histories * 200 // n), options.seed)
            rows.append({"runs": n, "step": step, "precision": found.precision, "recall": found.recall})
    waits = {f"{step:.0%}": alarms(step, 10 * options.histories, options.seed) for step in (0.05, 0.10)}
    if options.json:
        print(json.dumps({"places": rows, "delays": waits}, indent=1))
        return 0
    for row in rows:
        print(f"oracle, ar1 {row['runs']:>5} runs, {row['step']:.0%}: P {row['precision']:.3f} R {row['recall']:.3f}")
    for name, table in waits.items():
        print(f"median delay after a {name} step, ar1: no rule below / one window reaches")
        for line in table:
            print(f"  {line['false_per_1000']:>5} false per 1000 runs: {line['least']:g} / {line['reached']:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
