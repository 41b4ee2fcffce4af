import math
import random

import pytest
from tables import check_table

from benchhouse.analysis.compare import compare
from benchhouse.analysis.contrast import InfluenceEstimate, estimate, interval, p_value


def noisy(mean, spread, n, seed):
    source = random.Random(seed)
    return [source.gauss(mean, spread) for _ in range(n)]


def of_one(values):
    return estimate(lambda means: means[0], [(values,)])


def test_a_mean_has_the_value_the_error_and_the_freedom_of_a_mean():
    values = [9.0, 10.0, 11.0, 14.0]
    found = of_one(values)
    assert found.value == 11.0
    assert found.error == pytest.approx(math.sqrt(14.0 / 3.0 / 4.0))
    assert found.df == pytest.approx(3.0)


@check_table("n", [3, 6])
def test_a_difference_of_two_means_equals_the_result_of_compare(n):
    a, b = noisy(-100.0, 3.0, n, 1), noisy(-96.0, 5.0, n, 2)  # below zero, where the plain scale decides
    known = compare(a, b, direction=None, seed=3)
    found, method = interval(of_one(b).minus(of_one(a)), confidence=0.95, seed=3)
    assert method.split(",")[0] == known.method.split(",")[0]
    # Not the same resamples: an end moves by a few hundredths of the half width.
    assert found.lo == pytest.approx(known.difference_interval.lo, abs=0.6 if n > 5 else 1e-6)
    assert found.hi == pytest.approx(known.difference_interval.hi, abs=0.6 if n > 5 else 1e-6)


def test_what_the_number_does_not_depend_on_is_left_out():
    found = estimate(lambda means: means[1] ** 2, [([1.0, 9.0],), ([3.0, 3.2, 2.8],)])
    assert [len(group) for group in found.groups] == [3]
    assert found.groups[0][1] == pytest.approx(2 * 3.0 * 0.2, rel=1e-4)


def test_quantities_of_one_trial_move_the_number_together():
    # x and y rise and fall together, so that their difference has no spread at all.
    found = estimate(lambda means: means[1] - means[0], [([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])])
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_one_trial_has_no_interval_and_says_why():
    assert interval(of_one([5.0]), confidence=0.95, seed=1) == (None, "none, too few repetitions")
    assert p_value(of_one([5.0])) is None


def test_values_without_spread_are_exact_from_three_on():
    assert interval(of_one([5.0] * 2), confidence=0.95, seed=1)[0] is None
    assert interval(of_one([5.0] * 3), confidence=0.95, seed=1) == ((5.0, 5.0), "exact values, no spread")
    assert p_value(InfluenceEstimate(0.0, ((0.0, 0.0),))) == 1.0


def test_the_same_seed_gives_the_same_ends():
    found = of_one(noisy(10.0, 1.0, 8, 4))
    assert interval(found, confidence=0.95, seed=7) == interval(found, confidence=0.95, seed=7)


def test_the_numbers_of_an_estimate_are_those_of_its_influences():
    number = InfluenceEstimate(2.0, ((-1.0, 0.0, 1.0),))
    assert (number.n, number.df, number.error) == (3, 2.0, pytest.approx(math.sqrt(1 / 3)))
    assert p_value(number) == pytest.approx(1.0 - math.sqrt(12 / 14))
    reach = 4.302653 / math.sqrt(3)
    assert interval(number, confidence=0.95, seed=1) == (pytest.approx((2.0 - reach, 2.0 + reach)), "Welch t")
    both = number.minus(InfluenceEstimate(0.5, ((-2.0, 2.0), (0.0, 0.0, 0.0, 0.0))))
    assert (both.value, both.n) == (1.5, 2)
    assert both.groups == ((-1.0, 0.0, 1.0), (2.0, -2.0), (-0.0,) * 4)
    assert both.df == pytest.approx((1 / 3 + 4.0) ** 2 / ((1 / 3) ** 2 / 2 + 4.0**2))
    assert both.error == pytest.approx(math.sqrt(1 / 3 + 4.0))
    assert InfluenceEstimate(1.0, ()).n == 0 and InfluenceEstimate(1.0, ((5.0,),)).error == 0.0


def test_a_number_without_spread_is_zero_or_it_is_not():
    assert p_value(InfluenceEstimate(0.1, ((0.0, 0.0),))) == 0.0
    assert interval(InfluenceEstimate(0.1, ((0.0, 0.0),)), confidence=0.95, seed=1) == (
        None, "none, too few equal values to call them exact",
    )  # fmt: skip


def test_resampling_begins_with_five_trials_and_ends_with_two_hundred():
    methods = [interval(of_one(noisy(10.0, 1.0, n, 4)), confidence=0.95, seed=7)[1] for n in (2, 4, 5, 200, 201)]
    assert methods == ["Welch t", "Welch t", "bootstrap-t, 1999 resamples", "bootstrap-t, 1999 resamples", "Welch t"]


def test_a_slope_at_zero_is_found_too():
    found = estimate(lambda means: 3.0 * means[0], [([-1.0, 1.0],)])
    assert found.groups[0] == pytest.approx((-3.0, 3.0))
