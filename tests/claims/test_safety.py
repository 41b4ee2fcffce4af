import itertools
import math
import random

import pytest

from benchhouse.claims.safety import drift, interval_of, judge_values, kendall_p
from benchhouse.schema.claim import Policy


def test_the_exact_distribution_of_kendalls_score_is_that_of_all_orders():
    orders = list(itertools.permutations(range(5)))
    scores = [sum((b > a) - (b < a) for a, b in itertools.combinations(order, 2)) for order in orders]
    for score in range(0, 11, 2):
        assert kendall_p(5, score) == pytest.approx(sum(abs(one) >= score for one in scores) / len(orders))
    assert kendall_p(31, 200) == pytest.approx(kendall_p(30, 193), abs=0.002)  # the normal one joins smoothly


def test_a_trend_is_told_by_its_size_and_noise_is_not():
    assert drift([100.0, 102.0, 104.0, 106.0, 108.0]) == pytest.approx(8 / 104)
    assert drift([100.0, 102.0, 99.0, 101.0, 100.5]) is None
    assert drift([100.0, 102.0, 104.0]) is None  # three in order are no trend
    assert drift([0.0] * 6) is None
    noise = random.Random(3)
    alarms = sum(drift([noise.gauss(100, 5) for _ in range(8)]) is not None for _ in range(1000))
    assert alarms <= 35  # 2%, and three standard deviations


def test_an_interval_of_the_mean_covers_as_often_as_it_says():
    noise = random.Random(7)
    covered = 0
    for _ in range(1000):
        low, high = interval_of([noise.gauss(50, 5) for _ in range(5)], 0.95) or (0.0, 0.0)
        covered += low <= 50 <= high
    assert 925 <= covered <= 975
    assert interval_of([1.0], 0.95) is None
    assert interval_of([0.0, 1.0], 0.95)[0] == 0.0  # none was below zero


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ([100.0, 101.0, 100.5], []),
        ([100.0, 101.0], ["few_replicates"]),
        ([100.0], ["few_replicates", "no_interval"]),
        ([100.0, 140.0, 70.0], ["wide_interval"]),
        ([100.0, 103.0, 106.0, 109.0, 112.0], ["drift"]),
        ([-1.0, 0.0, 1.0], ["wide_interval"]),  # around zero no share says anything
        ([0.0, 0.0, 0.0], []),
    ],
)
def test_each_fault_of_values_is_named(values, codes):
    found = [reason.code for reason in judge_values("x", values, Policy())]
    assert found == codes
    assert all(math.isfinite(value) for value in values)
