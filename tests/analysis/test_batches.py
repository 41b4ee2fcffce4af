"""Dispersion of counts with a known amount of clumping."""

import numpy as np
import pytest

from benchhouse.analysis.knee import fit_clumping
from benchhouse.analysis.saturation import see


def independent(generator, batches=600, n=50, share=0.05):
    return [(n, int(over)) for over in generator.binomial(n, share, batches)]


def clumped(generator, batches=6000, n=20, length=10):
    """All requests of `length` neighbouring batches are over together, or none: so the dispersion is n * length."""
    return [(n, n * int(bad)) for bad in generator.random(batches // length) < 0.1 for _ in range(length)]


def mean_dispersion(make, runs=200):
    return np.mean([see(0.0, make(np.random.default_rng(seed))).dispersion for seed in range(runs)])


def test_independent_requests_have_a_dispersion_of_one():
    assert mean_dispersion(independent) == pytest.approx(1.0, abs=0.15)


def test_requests_that_are_over_in_clumps_are_worth_as_many_as_there_are_clumps():
    assert mean_dispersion(clumped) == pytest.approx(200.0, rel=0.15)


def test_a_trial_in_which_none_or_all_are_over_tells_nothing_of_clumps():
    assert see(0.0, [(10, 0)] * 50).df == 0
    assert see(0.0, [(10, 10)] * 50).df == 0


def strength(seen, allowed, floor=0.0):
    """The likeliest strength of the clumps, as a geometric mean."""
    found = fit_clumping(seen, [1.0] * len(seen), allowed, (floor,))
    chances = np.exp(found.logs[0] - found.logs[0].max())
    return float(np.exp(np.average(np.log(found.strengths[0]), weights=chances)))


def test_without_any_evidence_a_batch_is_taken_for_one_clump_or_fifty_requests():
    assert strength([see(0.0, [(300, 0)] * 50)], 0.05) == pytest.approx(300.0, rel=0.05)
    assert strength([see(0.0, [(10, 0)] * 50)], 0.05) == pytest.approx(50.0, rel=0.05)


def test_evidence_of_many_trials_overrides_the_first_guess():
    seen = [see(0.01 * i, independent(np.random.default_rng(i))) for i in range(12)]
    assert strength(seen, 0.05) < 1.0


def test_clumps_are_found_as_strong_as_they_are():
    seen = [see(0.0, clumped(np.random.default_rng(seed))) for seed in range(20)]
    assert 120.0 < strength(seen, 0.1) < 320.0  # 200 in truth


def test_a_floor_that_does_not_clump_leaves_stronger_clumps_for_the_rest():
    seen = [see(0.0, clumped(np.random.default_rng(seed))) for seed in range(20)]
    assert strength(seen, 0.1, floor=0.6) > 2.0 * strength(seen, 0.1)
