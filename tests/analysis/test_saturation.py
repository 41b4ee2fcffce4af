"""The saturation curve of services whose peak of power and capacity are known."""

import numpy as np
import pytest

from benchhouse.analysis.saturation import ProbePoint, TrialCounts, capacity, peak_power_load, see, share_interval


def curve(loads, delivered, latency=lambda load: None):
    return [ProbePoint(load, 10_000, delivered(load), (), latency(load)) for load in loads]


def test_the_peak_power_load_of_a_single_queue_is_at_half_its_capacity():
    # M/M/1 with 100 requests/s: latency 1 / (100 - load), so load / latency is largest at 50.
    points = curve([10, 20, 35, 45, 60, 75, 90, 97], lambda load: load, lambda load: 1.0 / (100.0 - load))
    assert peak_power_load(points) == pytest.approx(50.0, rel=0.03)


def test_a_curve_that_only_rises_has_no_load_of_peak_power_yet():
    assert peak_power_load(curve([1, 2, 4, 8], lambda load: load, lambda load: 0.1)) is None
    assert peak_power_load(curve([1, 2], lambda load: load, lambda load: 0.1)) is None
    assert peak_power_load(curve([1, 2, 4, 8], lambda load: load)) is None


def test_capacity_is_the_most_that_was_delivered():
    assert capacity(curve([10, 20, 40], lambda load: min(load, 25.0))) == 25.0
    assert capacity([]) == 0.0


def test_the_interval_of_a_share_covers_it_although_requests_clump():
    generator, covered = np.random.default_rng(1), 0
    for _ in range(300):
        bad = generator.random(240) < 0.1
        trial = [(20, 20 * int(flag)) for flag in bad for _ in range(5)]
        share = share_interval(see(0.0, trial), 0.95)
        covered += share.low <= 0.1 <= share.high
    assert covered >= 275  # 285 expected


def test_a_share_of_zero_has_an_upper_limit_above_zero():
    share = share_interval(TrialCounts(0.0, 100, 0, 10, 1.0, 0), 0.95)
    assert (share.observed, share.low) == (0.0, 0.0)
    assert 0.03 < share.high < 0.04
