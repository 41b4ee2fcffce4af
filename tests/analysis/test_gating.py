"""The gate's ruling, exact intervals, the rule that ends repetitions, A/A pairs, pairs of rounds and outliers."""

import math
import random

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.compare import compare
from benchhouse.analysis.gating import MOST, MeasuredChange, Ruling, rule, stands
from benchhouse.analysis.outliers import far_off
from benchhouse.analysis.paired import compare_paired
from benchhouse.analysis.selftest import exact_interval, judge_pairs, split
from benchhouse.analysis.stopping import enough, half_width, looks, settled, widened
from benchhouse.analysis.student import critical_t


def ruled(low, high, direction="lower", mde=0.03, n=5, certain=True):
    return rule(MeasuredChange((low + high) / 2, (low, high), None, direction, n, certain), mde=mde)


@check_table(
    "low, high, direction, says",
    [
        (-0.01, 0.02, "lower", "good"),
        (0.005, 0.02, "lower", "good"),  # surely slower, and surely by less than matters
        (0.02, 0.08, "lower", "regression"),
        (-0.08, -0.02, "higher", "regression"),
        (-0.08, -0.02, "lower", "good"),
        (-0.02, 0.05, "lower", "can't tell"),
    ],
)
def test_the_gate_decides_by_the_values_outside_the_interval(low, high, direction, says):
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


@check_table(
    "low, high, says",
    [
        (-0.01, 0.03, "can't tell"),  # the edge itself is not excluded
        (0.0, 0.08, "can't tell"),
        (0.001, 0.03, "regression"),
        (0.001, 0.029, "good"),
    ],
)
def test_an_interval_that_ends_at_a_limit_does_not_exclude_it(low, high, says):
    assert ruled(low, high).judgement == says


def test_the_numbers_of_a_ruling_are_those_of_its_interval():
    found, t = ruled(-0.05, 0.02, "higher"), 2.306004
    error = (math.log(1.02) - math.log(0.95)) / 2.0 / t
    assert (found.worse, found.low, found.high) == pytest.approx((0.015, -0.02, 0.05))
    assert found.visible == pytest.approx((t + 0.8416) * error, rel=1e-5)

    def shown(n):
        return (critical_t(0.95, 2 * n - 2) + 0.8416) * error * math.sqrt(2.5) * math.sqrt(2.0 / n) <= math.log(1.03)

    assert shown(found.needed) and not shown(found.needed - 1)
    assert ruled(0.031, 0.032).needed < 5, "of what is decided, what would have been enough"
    assert ruled(0.031, 0.032, certain=False).needed == 6, "of what is not, more than there are"
    assert ruled(-1.5, 9.0).needed == MOST == 10_000
    assert ruled(-0.5, 0.6, n=1).visible == pytest.approx((12.70620 + 0.8416) * math.log(1.6 / 0.5) / 2 / 12.70620)
    at_90 = rule(MeasuredChange(0.0, (-0.1, 0.1), None, "lower", 5, True), mde=0.03, confidence=0.9)
    assert at_90.visible == pytest.approx((1.859548 + 0.8416) * math.log(1.1 / 0.9) / 2 / 1.859548, rel=1e-5)


@check_table(
    "ends, direction, certain, says",
    [
        (None, "lower", True, "can't tell"),
        ((-0.2, 0.0), "lower", True, "good"),
        ((0.0, 0.2), "lower", True, "can't tell"),
        ((0.1, 0.2), "lower", False, "can't tell"),
        ((0.1, 0.2), "higher", True, "good"),
        ((-0.2, -0.1), "higher", True, "regression"),
    ],
)
def test_without_a_relative_interval_the_difference_decides(ends, direction, certain, says):
    found = rule(MeasuredChange(0.5, None, ends, direction, 5, certain), mde=0.03)
    assert found == Ruling(says, 0.5 if direction == "lower" else -0.5, None, None, None, None)


@check_table(
    "mean, interval, side, said",
    [
        (12.0, (11.0, 13.0), "above", "beyond"),
        (12.0, (10.0, 13.0), "above", "unsure"),
        (10.0, (9.0, 12.0), "above", "within"),
        (10.0, None, "above", "within"),
        (8.0, (7.0, 9.0), "below", "beyond"),
        (9.0, (7.0, 11.0), "below", "unsure"),
        (10.0, None, "below", "within"),
    ],
)
def test_a_limit_is_passed_only_by_a_whole_interval(mean, interval, side, said):
    assert stands(mean, interval, 10.0, side) == said


@check_table("hits, n, low, high", [(0, 20, 0.0, 0.1684), (1, 20, 0.0013, 0.2487), (20, 400, 0.0308, 0.0762)])
def test_exact_intervals_are_those_of_the_books(hits, n, low, high):
    assert exact_interval(hits, n) == pytest.approx((low, high), abs=1e-4)


def test_a_rate_has_both_ends_for_all_and_none_and_nothing_else_is_one():
    assert exact_interval(5, 5) == pytest.approx((0.025 ** (1 / 5), 1.0))
    assert exact_interval(0, 5) == pytest.approx((0.0, 1.0 - 0.025 ** (1 / 5)))
    assert exact_interval(1, 1, 0.9) == pytest.approx((0.05, 1.0))
    for hits, n in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match="a rate needs"):
            exact_interval(hits, n)


def test_looks_are_few_and_end_at_the_most():
    assert looks(5, 30) == [5, 8, 13, 21, 30]
    assert looks(3, 3) == [3]
    assert looks(1, 4) == [1, 2, 4]


def test_the_width_is_that_of_the_mean_as_a_share_of_it():
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 * math.sqrt(1 / 3) / 2.0)
    assert half_width([-1.0, -2.0, -3.0]) == half_width([1.0, 2.0, 3.0])
    assert half_width([0.0] * 3) == 0.0
    assert half_width([-1.0, 0.0, 1.0]) is None
    assert half_width([1.0, 1.0]) is None
    assert settled([5.0] * 3, 0.0) and not settled([1.0, 1.0], 1.0) and not settled([-1.0, 0.0, 1.0], 9.0)


def test_only_the_values_of_a_look_have_a_say_in_it():
    sure, wild = [100.0, 100.1, 99.9, 100.0, 100.0], [1.0, 500.0, 3.0]
    assert enough([*sure, *wild], 8, 8, 0.02, 5, 30) is True, "what came after the look confirms it, whatever it is"
    assert enough([*sure, *wild], 5, 7, 0.02, 5, 30) is False
    assert enough([*wild, *sure], 8, 8, 0.02, 5, 30) is False
    assert enough([None, *sure], 6, 8, 0.02, 5, 30) is True
    assert enough([*wild, *sure], 7, 8, 0.02, 5, 30) is None, "the second look hangs on the eighth"
    assert enough(wild, 3, 5, 0.02, 5, 5) is True


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
    assert (widened(0.95), widened(0.9)) == pytest.approx((0.956, 0.912))


def test_equal_pairs_seldom_look_different_and_a_planted_change_is_found():
    values = (100.0 * (1.0 + 0.02 * np.random.default_rng(1).standard_normal(400))).tolist()
    found = judge_pairs(split(values, 5), "lower")
    assert found.pairs == 40
    assert found.rate_interval[0] <= 0.05 <= found.rate_interval[1]
    assert found.cv == pytest.approx(0.02, rel=0.15)
    assert 0.02 < found.smallest_effect < 0.08


def test_pairs_that_differ_are_counted_and_the_spread_is_that_within_the_sides():
    alike = ([10.0, 11.0, 12.0], [12.0, 10.0, 11.0])
    apart = ([10.0, 11.0, 12.0], [30.0, 31.0, 32.0])
    found = judge_pairs([alike, alike, alike, apart], "lower")
    assert (found.pairs, found.false_positives, found.rate) == (4, 1, 0.25)
    assert found.rate_interval == exact_interval(1, 4)
    assert found.cv == pytest.approx(1.0 / (7 * 11.0 + 31.0) * 8)
    assert judge_pairs([([1.0, 9.0, 90.0], [90.0, 1.0, 9.0])] * 4).smallest_effect is None
    assert judge_pairs([([-1.0, 1.0], [1.0, -1.0])]).cv is None
    larger = ([10.0, 11.0, 12.0], [12.0, 13.0, 11.0])  # so that less is seen later than more
    worse = judge_pairs([larger] * 5, "lower").smallest_effect
    assert judge_pairs([larger] * 5).smallest_effect == worse < judge_pairs([larger] * 5, "higher").smallest_effect


def test_pairs_take_turns_so_that_drift_hits_both():
    assert split([1.0, 2.0, 3.0, 4.0, 5.0], 1) == [([1.0], [2.0]), ([3.0], [4.0])]
    assert split([1.0, 2.0, 3.0, 4.0], 2) == [([1.0, 3.0], [2.0, 4.0])]
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


def test_the_numbers_of_pairs_are_those_of_their_steps():
    b = [math.exp(step) for step in (0.1, 0.2, 0.3)]
    found = compare_paired([1.0] * 3, b, direction="lower")
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert (found.n_a, found.n_b, found.mean_a, found.mean_b) == (3, 3, 1.0, pytest.approx(sum(b) / 3))
    assert found.difference == pytest.approx(sum(b) / 3 - 1.0)
    assert found.change == pytest.approx(math.expm1(0.2))
    assert found.change_interval == pytest.approx((math.expm1(0.2 - reach), math.expm1(0.2 + reach)))
    wide = 4.302653 * float(np.std(b, ddof=1)) / math.sqrt(3)
    assert found.difference_interval == pytest.approx((found.difference - wide, found.difference + wide))
    assert (found.hedges_g, found.cliffs_delta) == (pytest.approx(2.0), 1.0)
    assert found.p_value == pytest.approx(1.0 - math.sqrt(12 / 14))
    assert (found.confidence, found.direction, found.verdict) == (0.95, "lower", "no evidence of a difference")
    assert (found.method, found.p_method) == ("paired t, 3 rounds", "paired t test")
    assert compare_paired([1.0] * 3, b, direction="lower", confidence=0.9).verdict == "worse"


def test_pairs_of_values_that_may_be_zero_are_compared_by_their_differences():
    found = compare_paired([0.0, 1.0, 2.0], [1.0, 3.0, 2.0], direction="higher")
    assert (found.change, found.change_interval, found.difference) == (1.0, None, 1.0)
    assert found.difference_interval == pytest.approx((1.0 - 4.302653 / math.sqrt(3), 1.0 + 4.302653 / math.sqrt(3)))
    assert compare_paired([-4.0, -1.0, -1.0], [-3.0, 1.0, -1.0], direction=None).change == pytest.approx(0.5)
    assert compare_paired([-1.0, 0.0, 1.0], [1.0, 2.0, 3.0], direction=None).change is None


def test_the_order_of_rounds_does_not_change_their_means():
    found = compare_paired([100.0, 130.0, 100.0], [110.0, 143.0, 110.0], direction="lower")
    assert (found.mean_a, found.mean_b, found.difference) == pytest.approx((110.0, 121.0, 11.0))
    assert half_width([1.0, 3.0, 2.0, 1.0]) == half_width([1.0, 1.0, 2.0, 3.0])


def test_pairs_without_spread_are_certain():
    same = compare_paired([1.0] * 3, [1.0] * 3, direction="lower")
    more = compare_paired([1.0] * 3, [2.0] * 3, direction="lower")
    assert (same.p_value, same.verdict, same.hedges_g) == (1.0, "no evidence of a difference", None)
    assert (more.p_value, more.verdict, more.hedges_g) == (0.0, "worse", None)


@check_table("sides", [([1.0, 2.0, 3.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, 2.0])])
def test_pairs_of_different_length_and_fewer_than_three_are_refused(sides):
    with pytest.raises(ValueError, match="pairs need equally many values, 3 or more"):
        compare_paired(*sides, direction=None)


def test_a_far_value_is_told_and_few_values_never_are():
    assert far_off([1.0, 1.01, 0.99, 1.0, 1.02, 50.0]) == [False] * 5 + [True]
    assert not any(far_off([1.0, 1.0, 50.0]))
    assert not any(far_off([1.0] * 9))
    near, far = [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0], [False] * 6
    assert far_off([*near, 7.40]) == [*far, False] and far_off([*near, 7.42]) == [*far, True]
    assert far_off([*near, -7.42]) == [*far, True]
    assert far_off([-1.0, 1.0, 0.0, -1.0, 50.0]) == [False] * 4 + [True]
    assert far_off([-1.0, 1.0, 0.0, 50.0]) == [False] * 4
    assert math.isfinite(sum(far_off([])))
