"""The truth test: intervals cover what they should, noise is rarely called a difference, and real ones are found.

The full table is benchmarks/coverage.py; these are seeded and short.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.compare import Pair, compare_many

_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def coverage():
    spec = importlib.util.spec_from_file_location("interval_coverage", _SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@check_table("n", [3, 10])
@pytest.mark.parametrize(
    "index", [1, 5, 6, 8, 9], ids=["gauss", "lognormal unequal", "heavy tails", "skewed", "exponential"]
)
def test_intervals_cover_the_truth_as_often_as_they_state(coverage, index, n):
    scenario = coverage.SCENARIOS[index]
    measured = coverage.measure(scenario, n, 1.0, runs=400, seed=1)
    # 400 runs have a standard error of 1.1 points, so the limits are moved outwards by two of them.
    assert measured.lowest_allowed - 0.022 <= measured.difference <= measured.highest_allowed + 0.022
    assert measured.lowest_allowed - 0.022 <= measured.change <= measured.highest_allowed + 0.022


@check_table("n", [3, 5, 10])
@check_table("shape, cv", [("gauss", 0.1), ("lognormal", 0.53), ("exponential", 1.0)])
def test_the_interval_of_a_mean_covers_it(coverage, shape, cv, n):
    measured = coverage.measure_mean(shape, cv, n, runs=2000, seed=1)
    assert measured.lowest_allowed - 0.01 <= measured.share <= measured.highest_allowed + 0.01


@check_table("n", [3, 5, 10])
def test_samples_that_fit_no_interval_are_reported(coverage, n):
    for step in (2.0, 4.0):
        assert coverage.measure_rounded(step, n, 600, seed=1).share >= 0.91
    assert coverage.measure_modes(0.2, n, 600, seed=1).share >= 0.91


def shares(shift, cv, n, batches=4):
    """Share of each verdict over batches of 300 comparisons.

    Batches have resamples of their own: one set of 1,999 moves the rate of all that share it by half a point or so.
    """
    verdicts = []
    for seed in range(batches):
        source = np.random.default_rng([n, seed])
        a, b = source.normal(1.0, cv, (300, n)), source.normal(1.0 + shift, cv, (300, n))
        pairs = [Pair(x, y, "higher") for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        verdicts += [result.verdict for result in compare_many(pairs, seed=seed)]
    return {verdict: verdicts.count(verdict) / len(verdicts) for verdict in set(verdicts)}


@pytest.mark.parametrize(("n", "lowest"), [(3, 0.012), (5, 0.025), (10, 0.025)])
def test_two_runs_of_the_same_thing_are_called_different_one_time_in_twenty(n, lowest):
    # Four standard errors of 1,200 comparisons either side of 5%; Welch's t at n=3 is known to be cautious.
    assert lowest <= 1.0 - shares(0.0, 0.02, n)["no evidence of a difference"] <= 0.075


def test_a_planted_tenth_is_found_at_five_repetitions():
    assert shares(0.10, 0.02, 5, batches=2).get("better", 0.0) >= 0.99


def test_a_planted_loss_is_never_called_better():
    assert shares(-0.10, 0.02, 5, batches=2).get("better", 0.0) == 0.0
