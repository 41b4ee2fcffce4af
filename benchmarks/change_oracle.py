"""The best that any detector could do in noise that remembers: one that knows all but where the changes are.

It knows that the noise is AR(1) with phi 0.5 and its deviation, the size of the steps and the level at the beginning.
Places: the probability of a change near each run, by forward and backward recursion over the levels; those above a
threshold are told that gives 0.5 false alarms per 1000 runs of histories without a change. Alarms: the likelihood of a
step of that size at any earlier run against none, with a threshold of the same kind.

    python benchmarks/change_oracle.py [--histories 300] [--seed 2026] [--json]

It has no bar: `change_points.py` has them, and this says which of them can be held in that noise at all.
"""

from __future__ import annotations

import argparse
import json
import math
import sys

import numpy as np
from change_points import APART, MOST_FALSE, NEAR, SPREAD, Score, history
from numpy.typing import NDArray

PHI = 0.5
SHOCK = SPREAD * math.sqrt(1.0 - PHI * PHI)
HAZARD, LEVELS = 0.01, 7  # changes a run, levels either way
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


def farthest(values: Matrix, step: float) -> Matrix:
    """At each run: how much likelier a step, up or down, at the best earlier run makes what came since."""
    off = np.log(values)
    steps = off.copy()
    steps[:, 1:] -= PHI * off[:, :-1]
    best = np.zeros(values.shape)
    for size in (math.log1p(step), -math.log1p(step)):
        first, later = size / SHOCK, size * (1.0 - PHI) / SHOCK
        running = np.full(len(values), -np.inf)
        for at in range(values.shape[1]):
            shock = steps[:, at] / SHOCK
            goes_on = running + later * shock - later * later / 2.0
            running = np.maximum(goes_on, first * shock - first * first / 2.0)
            best[:, at] = np.maximum(best[:, at], running)
    return best


def delay(step: float, tries: int, seed: int, later: int = 200) -> float:
    """The median number of runs after a step until an alarm, at 0.5 false alarms per 1000 runs."""
    rng = np.random.default_rng([seed, 11])
    noise = np.empty((tries, later))
    noise[:, 0] = rng.standard_normal(tries)
    for at in range(1, later):
        noise[:, at] = PHI * noise[:, at - 1] + rng.standard_normal(tries) * math.sqrt(1.0 - PHI * PHI)
    quiet = 1.0 + SPREAD * noise
    highest = np.maximum.accumulate(farthest(quiet, step), axis=1)

    def rate(limit: float) -> float:
        over = highest >= limit
        watched = np.where(over[:, -1], over.argmax(1) + 1, later)
        return float(over[:, -1].sum() / watched.sum() * 1000)

    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rate(middle) > MOST_FALSE else (low, middle)
    moved = quiet.copy()
    moved[:, 10:] *= 1.0 + step
    over = farthest(moved, step)[:, 10:] >= high
    return float(np.median(np.where(over.any(1), over.argmax(1) + 1, later)))


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
    waits = {f"{step:.0%}": delay(step, 10 * options.histories, options.seed) for step in (0.05, 0.10)}
    if options.json:
        print(json.dumps({"places": rows, "delay_runs": waits}, indent=1))
        return 0
    for row in rows:
        print(f"oracle, ar1 {row['runs']:>5} runs, {row['step']:.0%}: P {row['precision']:.3f} R {row['recall']:.3f}")
    for name, runs in waits.items():
        print(f"oracle, ar1, alarm after a {name} step: median {runs:g} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
