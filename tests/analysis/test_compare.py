"""Comparisons: the verdict's words, the edge cases, and invariances that must hold for any values."""

import math
import random
import subprocess
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tables import check_table

from benchhouse.analysis.compare import CAP, Pair, compare, compare_many, p_value
from benchhouse.analysis.student import critical_t, welch_df
from benchhouse.analysis.summary import mean, variance

SLOW = [100.0, 101.0, 99.0, 100.5, 98.7]
FAST = [88.0, 87.0, 89.0, 88.4, 87.2]

# Whole thousandths: values as measured, without the subnormals no clock returns.
signed = st.integers(-(10**6), 10**6).map(lambda whole: whole / 1000)
positive = st.integers(1, 10**6).map(lambda whole: whole / 1000)
signed_sample = st.lists(signed, min_size=2, max_size=8)
positive_sample = st.lists(positive, min_size=2, max_size=8)


def draw(seed, mean, cv, n):
    source = random.Random(seed)
    return [source.gauss(mean, mean * cv) for _ in range(n)]


@check_table("direction, verdict", [("lower", "better"), ("higher", "worse"), (None, "different")])
def test_verdict_follows_the_direction_of_the_metric(direction, verdict):
    result = compare(SLOW, FAST, direction=direction, seed=1)
    assert result.verdict == verdict
    assert result.change == pytest.approx(-0.1194, abs=1e-3)
    assert result.change_interval.lo < result.change < result.change_interval.hi < 0
    assert result.cliffs_delta == -1.0
    assert result.hedges_g < -5
    assert result.method == "bootstrap-t, 1999 resamples"


def test_sentence_says_it_in_plain_words():
    sentence = compare(SLOW, FAST, direction="lower", seed=1).sentence()
    assert sentence.startswith("B is 11.9% lower (95% interval -13.")
    assert sentence.endswith("%, n=5 and 5): better")
    assert compare(SLOW, FAST, direction="lower", seed=1).sentence("main", "patch").startswith("patch is 11.9% lower")


def test_equal_samples_give_no_evidence():
    result = compare(SLOW, list(reversed(SLOW)), direction="lower", seed=1)
    assert result.verdict == "no evidence of a difference"
    assert result.sentence().startswith("B equals A (95% interval -")


def test_three_repetitions_are_compared_by_welch():
    result = compare(SLOW[:3], FAST[:3], direction="lower", seed=1)
    assert result.method == "Welch t, n too small to resample"
    assert result.verdict == "better"


def test_large_samples_are_compared_by_welch():
    result = compare(draw(1, 10, 0.1, 300), draw(2, 10, 0.1, 300), direction=None, seed=1)
    assert result.method == "Welch t, n too large to resample"


def test_one_repetition_gets_no_interval():
    result = compare([1.0], [2.0, 3.0], direction="lower", seed=1)
    assert (result.difference_interval, result.change_interval, result.p_value, result.hedges_g) == (None,) * 4
    assert result.sentence() == "B is 150.0% higher (n=1 and 2, no interval): too few repetitions"


@check_table("n", [3, 5, 300])
def test_different_constants_are_exact(n):
    result = compare([0.9] * n, [0.95] * n, direction="higher", seed=1)
    assert result.method == "exact values, no spread"
    assert result.difference_interval == (result.difference, result.difference)
    assert result.change_interval == (result.change, result.change)
    assert (result.verdict, result.p_value, result.hedges_g) == ("better", 0.0, None)
    assert result.sentence() == f"B is 5.6% higher (exact values, no spread, n={n} and {n}): better"


def test_two_equal_values_a_side_are_not_called_exact():
    result = compare([10.0, 10.0], [20.0, 20.0], direction="lower", seed=1)
    assert (result.verdict, result.difference_interval) == ("too few repetitions", None)


def test_p_value_on_a_published_example():
    # Rosetta Code, "Welch's t-test", first data set, shifted below zero: there the plain scale decides.
    a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    shifted = [[value - 100 for value in side] for side in (a, b)]
    assert p_value(*shifted) == pytest.approx(0.021378001462867, rel=1e-9)


@check_table("value", [0.1, 0.0, -3.0])
def test_identical_constants_give_no_evidence(value):
    result = compare([value] * 3, [value] * 7, direction="higher", seed=1)
    assert (result.difference, result.verdict, result.p_value) == (0.0, "no evidence of a difference", 1.0)
    assert result.sentence().startswith("B equals A (exact values, no spread")


def test_means_that_differ_in_rounding_only_are_no_evidence():
    assert compare([0.3] * 5, [0.1 + 0.2] * 5, direction="higher", seed=1).verdict == "no evidence of a difference"


def test_a_zero_baseline_has_no_relative_change():
    result = compare([0.0] * 5, [3.0, 4.0, 5.0, 4.0, 4.0], direction="lower", seed=1)
    assert (result.change, result.change_interval, result.difference, result.verdict) == (None, None, 4.0, "worse")
    assert result.sentence().startswith("B is 4 higher (95% interval +")


def test_negative_values_are_compared_in_their_own_unit():
    result = compare([-5.0, -6.0, -5.5, -5.2, -5.8], [1.0, 2.0, 1.5, 1.2, 1.8], direction="higher", seed=1)
    assert (result.verdict, result.change_interval) == ("better", None)
    assert result.change == pytest.approx(7.0 / 5.5)


def test_tied_values_leave_a_finite_interval_within_the_cap():
    a, b = [-0.9, -0.9, -0.9, -0.9, -0.95], [-0.9] * 5
    interval = compare(a, b, direction="higher", seed=1).difference_interval
    var = variance(a, mean(sorted(a))) / 5
    widest = CAP * critical_t(0.95, welch_df(var, 0.0, 5, 5)) * math.sqrt(var)
    assert 0.01 - widest <= interval.lo <= interval.hi <= 0.01 + widest
    positive = compare([-value for value in a], [0.9] * 5, direction="higher", seed=1).change_interval
    reach = widest / mean(sorted(-value for value in a)) - math.log(0.91 / 0.9)
    assert math.log1p(positive.lo) >= -reach - 2 * math.log(0.91 / 0.9) and math.log1p(positive.hi) <= reach


@check_table(
    "a, b, settings",
    [
        ([], [1.0], {}),
        ([1.0, math.nan], [1.0], {}),
        ([1.0], [math.inf], {}),
        (SLOW, FAST, {"confidence": 1.0}),
        (SLOW, FAST, {"resamples": 10}),
    ],
)
def test_samples_that_cannot_be_compared_are_refused(a, b, settings):
    with pytest.raises(ValueError):
        compare(a, b, direction=None, seed=1, **settings)


def test_higher_confidence_means_a_wider_interval():
    narrow, wide = (compare(SLOW, FAST, direction=None, seed=1, confidence=c).difference_interval for c in (0.8, 0.99))
    assert wide.lo < narrow.lo < narrow.hi < wide.hi


def test_a_seed_decides_everything():
    first, again, other = (compare(SLOW, FAST, direction=None, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.difference_interval != other.difference_interval


def test_a_batch_gives_each_pair_what_it_gets_alone():
    pairs = [
        Pair(draw(seed, 10, 0.1, n_a), draw(seed + 50, sign * 11, 0.1, n_b), "lower")
        for seed, (n_a, n_b, sign) in enumerate([(5, 5, 1), (5, 8, 1), (3, 3, 1), (5, 5, -1), (1, 5, 1), (5, 5, 1)])
    ]
    together = compare_many(pairs, seed=3)
    for pair, result in zip(pairs, together, strict=True):
        alone = compare(pair.a, pair.b, direction=pair.direction, seed=3)
        assert result.verdict == alone.verdict
        assert (result.difference_interval is None) == (len(pair.a) == 1)
        if alone.difference_interval is not None:
            assert result.difference_interval == pytest.approx(alone.difference_interval, rel=1e-9)


def test_small_samples_never_import_numpy():
    code = (
        "import sys; from benchhouse.analysis.compare import compare;"
        "compare([1, 2, 3], [2, 3, 5], direction=None, seed=1); sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(deadline=None, max_examples=60)
@given(signed_sample, signed_sample)
def test_swapping_the_sides_flips_the_signs_and_nothing_else(a, b):
    assume(sorted(a) != sorted(b))  # nothing tells the sides of such a pair apart, so there is nothing to swap
    forth, back = compare(a, b, direction="higher", seed=1), compare(b, a, direction="lower", seed=1)
    assert back.difference == -forth.difference
    if forth.difference_interval is None:  # two sides without any spread
        assert back.difference_interval is None
    else:
        assert back.difference_interval == (-forth.difference_interval.hi, -forth.difference_interval.lo)
    assert back.cliffs_delta == -forth.cliffs_delta
    assert back.verdict == forth.verdict


@settings(deadline=None, max_examples=60)
@given(positive_sample, positive_sample, st.integers(-20, 20))
def test_change_does_not_depend_on_the_unit(a, b, exponent):
    # Powers of two scale without rounding, so even the verdict at the very edge must stay.
    scale = 2.0**exponent
    plain = compare(a, b, direction="lower", seed=1)
    scaled = compare([x * scale for x in a], [x * scale for x in b], direction="lower", seed=1)
    assert scaled.change == pytest.approx(plain.change, rel=1e-9)
    assert (scaled.change_interval is None) == (plain.change_interval is None)
    if plain.change_interval is not None:
        assert scaled.change_interval == pytest.approx(plain.change_interval, rel=1e-6, abs=1e-9)
    assert scaled.verdict == plain.verdict


@settings(deadline=None, max_examples=60)
@given(signed_sample, st.randoms(use_true_random=False))
def test_order_of_the_trials_does_not_matter(a, shuffler):
    b = [value + 1.0 for value in a]
    mixed = shuffler.sample(a, len(a))
    assert compare(mixed, b, direction=None, seed=1) == compare(a, b, direction=None, seed=1)


@settings(deadline=None, max_examples=100)
@given(positive_sample, positive_sample)
def test_the_verdict_goes_by_the_interval_that_is_shown(a, b):
    result = compare(a, b, direction="higher", seed=1)
    assume(not math.isclose(result.mean_a, result.mean_b))
    shown = result.change_interval or result.difference_interval
    if shown is None:
        assert result.verdict == "too few repetitions"
        return
    assert shown.covers(0.0) == (result.verdict == "no evidence of a difference")
    assert all(math.isfinite(end) for end in shown)
    if result.change_interval:
        assert result.change_interval.lo > -1.0


def test_a_large_drop_from_a_noisy_baseline_is_seen():
    result = compare(NOISY, [15e3, 16e3, 14e3, 15e3, 17e3], direction="higher", seed=1)
    assert result.verdict == "worse"
    assert result.change_interval.hi < -0.98


@check_table(
    "a, b",
    [
        ([0.001, 0.001], [0.001, 0.001, 0.207]),
        ([10.0, 10.1, 9.9], [10.0, 10.2, 2500.0]),
        ([10.0, 10.1, 9.9, 10.0], [10.0, 10.2, 9.8, 2500.0]),
        ([10.0, 10.1, 9.9, 10.0, 10.05], [10.0, 10.2, 9.8, 10.1, 2500.0]),
    ],
)
def test_one_huge_value_gives_no_evidence_of_a_difference(a, b):
    result = compare(a, b, direction="higher", seed=1)
    assert result.change_interval.covers(0.0)
    assert result.verdict == "no evidence of a difference"


@settings(deadline=None, max_examples=60)
@given(positive_sample, positive_sample)
def test_the_scale_is_that_of_the_metric_and_never_chosen_by_the_spread(a, b):
    result = compare(a, b, direction="higher", seed=1)
    assert (result.change_interval is None) == (result.difference_interval is None)


NOISY = [2.1e6, 9.8e6, 3.9e6, 12.0e6, 6.5e6]
EIGHT = [100.0, 101.0, 99.5, 100.4, 99.9, 100.2, 99.7, 103.0]
BEFORE = [  # as released with that definition: interval of the difference, of the change, p
    (1, EIGHT, [value * 1.1 for value in EIGHT],
     (8.906052781632441, 11.265175717592356), (0.08746164784289638, 0.1122685682113517), 9.299346398986699e-11),
    (2, EIGHT, [value * 1.1 for value in EIGHT],
     (8.84225295557939, 11.28961129403301), (0.08717300070806513, 0.11277108909930351), 9.299346398986699e-11),
    (2, SLOW[:3], FAST[:3], (-14.266957935527518, -9.733042064472482), (-0.14122932374704372, -0.0982458746974081),
     0.00014088856417576387),
    (2, NOISY, [15e3, 16e3, 14e3, 15e3, 17e3], (-13988484.55896252, -1125061.5818071263),
     (-0.9989201593663358, -0.9942247580269571), 1.7175212242436412e-05),
    (2, [1.0, 9.0, 2.0], [5.0, 0.5, 30.0], (-28.400417382612673, 44.067084049279345), None, 0.4869670207030484),
    (2, [-1.0, 2.0, 3.0, 1.0, 0.5], [4.0, 5.0, 3.5, 6.0, 2.0], (0.6705961172481056, 5.178362494603396), None,
     0.014063722330612228),
]  # fmt: skip


@check_table("definition, a, b, difference, change, p", BEFORE)
def test_an_earlier_definition_gives_its_earlier_results(definition, a, b, difference, change, p):
    result = compare(a, b, direction="lower", seed=1, definition=definition)
    assert result.difference_interval == pytest.approx(difference, rel=1e-9)
    assert result.change_interval == (pytest.approx(change, rel=1e-9) if change else None)
    assert result.p_value == pytest.approx(p, rel=1e-9)
