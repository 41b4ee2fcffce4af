"""The gate's ruling, exact intervals, the rule that ends repetitions, A/A pairs, pairs of rounds and outliers."""

import math
import random

import numpy as np
import pytest

from benchhouse.analysis.compare import compare
from benchhouse.analysis.gating import MeasuredChange, rule
from benchhouse.analysis.outliers import far_off
from benchhouse.analysis.paired import compare_paired
from benchhouse.analysis.selftest import exact_interval, judge_pairs, split
from benchhouse.analysis.stopping import enough, half_width, looks, settled, widened


def ruled(low, high, direction="lower", mde=0.03, n=5, certain=True):
    return rule(MeasuredChange((low + high) / 2, (low, high), None, direction, n, certain), mde=mde)


@pytest.mark.parametrize(
    ("low", "high", "direction", "says"),
    [
        (-0.01, 0.02, "lower", "good"),
        (0.005, 0.02, "lower", "good"),  # surely slower, and surely by less than matters
        (0.02, 0.08, "lower", "regression"),
        (-0.08, -0.02, "higher", "regression"),
        (-0.08, -0.02, "lower", "good"),
        (-0.02, 0.05, "lower", "can't tell"),
    ],
)
def test_the_gate_goes_by_what_the_interval_excludes(low, high, direction, says):
    assert ruled(low, high, direction).judgement == says


def test_a_regression_that_does_not_survive_correction_is_undecided():
    assert ruled(0.02, 0.08, certain=False).judgement == "can't tell"


def test_undecided_says_how_many_repetitions_would_do():
    found = ruled(-0.02, 0.05)
    assert found.needed > 5
    assert found.visible > 0.03
    assert ruled(-0.10, 0.12).needed > found.needed


def test_a_level_of_zero_is_judged_by_the_difference():
    for ends, says in (((0.0, 0.0), "good"), ((0.1, 0.2), "regression"), ((-0.1, 0.2), "can't tell")):
        found = rule(MeasuredChange(None, None, ends, "lower", n=5, certain=True), mde=0.03)
        assert found.judgement == says


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(0, 20, 0.0, 0.1684), (1, 20, 0.0013, 0.2487), (20, 400, 0.0308, 0.0762)]
)
def test_exact_intervals_are_those_of_the_books(hits, n, low, high):
    assert exact_interval(hits, n) == pytest.approx((low, high), abs=1e-4)


def test_looks_are_few_and_end_at_the_most():
    assert looks(5, 30) == [5, 8, 13, 21, 30]
    assert looks(3, 3) == [3]


def test_a_point_that_is_known_gets_one_more_round_and_stops():
    sure = [100.0, 100.1, 99.9, 100.05, 99.95, 100.0, 100.1, 99.9]
    assert settled(sure[:5], 0.02)
    answers = [enough(sure, 8, count, 0.02, 5, 30) for count in (3, 5, 7, 8)]
    assert answers == [False, False, False, True]


def test_a_noisy_point_goes_on_to_the_most():
    noisy = [1.0, 5.0, 2.0, 9.0] * 8
    assert not any(enough(noisy, 32, count, 0.02, 5, 30) for count in range(30))
    assert enough(noisy, 32, 30, 0.02, 5, 30)


def test_the_rule_waits_for_values_that_it_hangs_on():
    assert enough([1.0, 1.0], 2, 6, 0.02, 5, 30) is None
    assert enough([1.0, 1.0], 2, 4, 0.02, 5, 30) is False


def test_a_point_whose_trials_fail_is_never_sure():
    assert not enough([None] * 20, 20, 20, 0.02, 5, 30)
    assert half_width([1.0, 1.0]) is None


def test_intervals_after_early_stopping_are_made_wider():
    assert widened(0.95) == pytest.approx(0.956)


def test_equal_pairs_seldom_look_different_and_a_planted_change_is_found():
    values = (100.0 * (1.0 + 0.02 * np.random.default_rng(1).standard_normal(400))).tolist()
    found = judge_pairs(split(values, 5), "lower")
    assert found.pairs == 40
    assert found.rate_interval[0] <= 0.05 <= found.rate_interval[1]
    assert found.cv == pytest.approx(0.02, rel=0.15)
    assert 0.02 < found.smallest_effect < 0.08


def test_pairs_take_turns_so_that_drift_hits_both():
    assert split([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 3) == [([1.0, 3.0, 5.0], [2.0, 4.0, 6.0])]


def test_rounds_see_through_a_drift_that_hides_the_change():
    drift = [100.0 * 1.1**at for at in range(6)]
    other = [value * 1.02 * (1 + 0.001 * (-1) ** at) for at, value in enumerate(drift)]
    found = compare_paired(drift, other, direction="lower")
    assert found.verdict == "worse"
    assert found.change == pytest.approx(0.02, abs=0.001)
    assert found.method == "paired t, 6 rounds"
    assert compare_paired(other, drift, direction="lower").verdict == "better"


def test_intervals_of_pairs_are_narrower_under_common_noise_and_cover_the_truth():
    draw = random.Random(17)
    covered, narrower, tries = 0, 0, 300
    for _ in range(tries):
        common = [draw.gauss(0.0, 0.10) for _ in range(6)]  # what a round does to both sides
        a, b = ([level * math.exp(shared + draw.gauss(0.0, 0.01)) for shared in common] for level in (100.0, 103.0))
        paired = compare_paired(a, b, direction=None).change_interval
        plain = compare(a, b, direction=None, seed=1, resamples=199).change_interval
        covered += paired.covers(0.03)
        narrower += paired.hi - paired.lo < (plain.hi - plain.lo) / 2
    assert 0.92 <= covered / tries <= 0.98
    assert narrower >= 0.98 * tries


def test_pairs_of_different_length_are_refused():
    with pytest.raises(ValueError):
        compare_paired([1.0, 2.0, 3.0], [1.0, 2.0], direction=None)


def test_a_far_value_is_told_and_few_values_never_are():
    assert far_off([1.0, 1.01, 0.99, 1.0, 1.02, 50.0]) == [False] * 5 + [True]
    assert not any(far_off([1.0, 1.0, 50.0]))
    assert not any(far_off([1.0] * 9))
    assert math.isfinite(sum(far_off([])))
