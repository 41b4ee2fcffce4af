"""Dispersion of counts with a known amount of clumping."""

import numpy as np
import pytest

from benchhouse.analysis.batches import fit_dispersion, see


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


def test_clumps_longer_than_a_batch_are_remembered_as_long_as_they_last():
    seen = [see(0.0, clumped(np.random.default_rng(seed))) for seed in range(40)]
    assert fit_dispersion(seen, [1.0] * len(seen), 0.0).memory == pytest.approx(10.0, rel=0.2)


def test_a_trial_in_which_none_or_all_are_over_tells_nothing_of_clumps():
    assert see(0.0, [(10, 0)] * 50).df == 0
    assert see(0.0, [(10, 10)] * 50).df == 0


def test_without_any_evidence_a_few_batches_are_taken_for_one_clump():
    blind = fit_dispersion([see(0.0, [(100, 0)] * 50)], [1.0], 0.0)
    assert blind.level == pytest.approx(np.log(300.0))


def test_evidence_of_many_trials_overrides_the_first_guess():
    seen = [see(0.01 * i, independent(np.random.default_rng(i))) for i in range(12)]
    assert 1.0 <= fit_dispersion(seen, [1.0] * 12, 0.0).at(0.05) < 2.0


def test_the_fitted_dispersion_follows_the_load():
    def trial(x, seed):
        return see(x, clumped(np.random.default_rng(seed), n=20 if x < 0 else 60))

    seen = [trial(x, seed) for seed, x in enumerate([-0.1, 0.1] * 10)]
    spread = fit_dispersion(seen, [1.0] * 20, 0.0)
    assert spread.at(0.1) / spread.at(-0.1) == pytest.approx(3.0, rel=0.5)
