"""Where growth stops, on curves of which that is known."""

import math

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.scaling import ScalingStage, find_stop, growth

PLACES = (1, 2, 4, 8, 16, 32, 64)
CURVES = {
    "a sharp bend at 12": lambda p: 1000.0 * min(p, 12),
    "a sharp bend at 20": lambda p: 1000.0 * min(p, 20),
    "contention, and a fall after the peak": lambda p: 1000.0 * p / (1 + 0.03 * (p - 1) + 0.001 * p * (p - 1)),
    "slow saturation": lambda p: 12000.0 * (1 - math.exp(-p / 9)),
}


def truth(curve):
    fine = [64 ** (at / 4000) for at in range(4001)]
    top = max(map(curve, fine))
    return next(place for place in fine if curve(place) >= 0.95 * top)


def stages(curve, n=5, spread=0.0, source=None, places=PLACES):
    noise = (lambda: source.normal(1.0, spread, n)) if source else (lambda: np.ones(n))
    return [ScalingStage(place, (curve(place) * noise()).tolist()) for place in places]


@pytest.mark.parametrize(("name", "n"), list(zip(CURVES, [3, 5, 5, 3], strict=True)))  # more: tradeoff_coverage.py
def test_the_interval_covers_the_place_where_growth_stops(name, n):
    source, curve = np.random.default_rng([n, 1]), CURVES[name]
    found = [find_stop(stages(curve, n, 0.02, source), seed=seed) for seed in range(40)]
    stopped = [one for one in found if one.kind == "stops"]
    assert len(stopped) >= 34  # if 64 is hardly more than 95% of the final value, noise may hide the end
    assert sum(one.interval.covers(truth(curve)) for one in stopped) >= 0.9 * len(stopped)


def test_the_stages_around_the_stop_are_named():
    found = find_stop(stages(CURVES["a sharp bend at 12"]), seed=1)
    assert (found.kind, found.between) == ("stops", (8.0, 16.0))
    assert found.interval.lo <= 11.4 <= found.interval.hi
    assert found.interval.lo <= found.at <= found.interval.hi
    assert found.top == pytest.approx(12000.0)


def test_what_still_grows_at_the_end_has_no_stop():
    assert find_stop(stages(lambda p: 100.0 * p), seed=1).kind == "grows"


def test_growth_that_the_spread_may_have_made_up_is_not_called_growth():
    noisy = [(90.0, 100.0, 110.0), (60.0, 85.0, 110.0), (70.0, 88.0, 106.0), (75.0, 113.0, 151.0)]
    found = find_stop([ScalingStage(2**at, values) for at, values in enumerate(noisy)], seed=1)
    assert (found.kind, found.at) == ("unclear", None)


@check_table("curve", [lambda p: 100.0, lambda p: 100.0 / p])
def test_a_curve_without_growth_is_flat(curve):
    assert find_stop(stages(curve), seed=1).kind == "flat"


def test_with_one_trial_the_interval_knows_only_what_lies_between():
    found = find_stop(stages(CURVES["a sharp bend at 12"], n=1), seed=1)
    assert found.kind == "stops"
    assert not found.spread_known
    assert 8.0 < found.interval.lo < found.interval.hi <= 16.0


def test_too_little_to_say_is_none():
    assert find_stop(stages(CURVES["slow saturation"], places=(1, 2)), seed=1) is None
    assert find_stop([ScalingStage(0, [1.0]), ScalingStage(1, [2.0]), ScalingStage(2, [3.0])], seed=1) is None
    assert find_stop([ScalingStage(1, [0.0]), ScalingStage(2, [2.0]), ScalingStage(3, [3.0])], seed=1) is None


def test_growth_is_told_against_the_first_whatever_the_order():
    source = np.random.default_rng(1)
    made = stages(CURVES["a sharp bend at 12"], 5, 0.01, source)
    found = growth(list(reversed(made)), seed=1)[::-1]
    assert (found[0].times, found[0].efficiency) == (1.0, 1.0)
    assert found[4].times == pytest.approx(12.0, rel=0.02)
    assert found[4].efficiency == pytest.approx(0.75, rel=0.02)
    assert found[4].times_interval.covers(12.0)
    assert found[4].efficiency_interval.covers(0.75)


def test_growth_of_single_trials_has_no_interval():
    assert growth([ScalingStage(1, [1.0]), ScalingStage(2, [2.0])], seed=1)[1].times_interval is None
