"""Summaries agree with textbook tables and with numpy, and say when a percentile has too few values behind it."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import check_table

from benchhouse.analysis.summary import (
    QUANTILE,
    enough_for,
    mean,
    quantile,
    shaky_quantiles,
    summarise,
    summarise_histogram,
)
from benchhouse.schema.histogram import RELATIVE_ERROR, Histogram

values = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)


def test_summary_of_one_to_ten():
    summary = summarise(range(10, 0, -1))
    assert (summary.n, summary.mean, summary.min, summary.max) == (10, 5.5, 1.0, 10.0)
    assert summary.stdev == pytest.approx(3.0276503540974917)
    assert summary.cv == pytest.approx(3.0276503540974917 / 5.5)
    assert (summary.p50, summary.p90, summary.p95, summary.p99) == pytest.approx((5.5, 9.1, 9.55, 9.91))


def test_statistics_have_the_names_of_measurements():
    stats = summarise(range(1, 1002)).stats()
    assert list(stats) == ["mean", "stdev", "min", "p50", "p90", "p95", "p99", "p99.9", "max"]
    assert (stats["p50"], stats["p99.9"], stats["max"]) == pytest.approx((501, 1000, 1001))
    assert "stdev" not in summarise([1.0]).stats()


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_a_histogram_has_the_summary_of_its_values_within_the_stated_error(nanoseconds):
    counted = summarise_histogram(Histogram(nanoseconds), "ms").stats()
    exact = summarise([value / 1e6 for value in nanoseconds]).stats()
    assert list(counted) == list(exact)
    for stat, value in exact.items():
        if stat.startswith("p"):
            assert abs(counted[stat] - value) <= value * RELATIVE_ERROR * (1 + 1e-9)
        else:
            assert counted[stat] == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_an_empty_histogram_has_no_summary():
    with pytest.raises(ValueError, match="empty histogram"):
        summarise_histogram(Histogram(), "ms")


def test_one_value_has_no_spread():
    summary = summarise([3.0])
    assert (summary.stdev, summary.cv, summary.p50, summary.p99) == (None, None, 3.0, 3.0)


def test_a_mean_of_zero_has_no_cv():
    assert summarise([-1.0, 1.0]).cv is None


def test_a_constant_sample_has_exactly_no_spread():
    summary = summarise([0.1] * 7)
    assert (summary.mean, summary.stdev, summary.cv) == (0.1, 0.0, 0.0)


@check_table("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="position 1"):
        summarise([1.0, bad])


def test_no_values_are_refused():
    with pytest.raises(ValueError, match="at least one value"):
        summarise([])


@given(values, st.floats(0.0, 1.0))
def test_quantiles_agree_with_numpy(sample, q):
    assert QUANTILE == "hyndman-fan-7"
    expected = np.quantile(sample, q, method="linear")
    assert quantile(sorted(sample), q) == pytest.approx(expected, rel=1e-9, abs=1e-5)


@given(values)
def test_percentiles_are_ordered_and_inside_the_range(sample):
    s = summarise(sample)
    slack = 1e-6
    ladder = [s.min, s.p50, s.p90, s.p95, s.p99, s.p99_9, s.max]
    assert all(low <= high + slack for low, high in pairwise(ladder))
    assert s.min - slack <= s.mean <= s.max + slack


@check_table("q, needed", [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000)])
def test_a_percentile_needs_one_value_expected_beyond_it(q, needed):
    assert enough_for(q, needed)
    assert not enough_for(q, needed - 1)


@check_table(
    "n, shaky",
    [
        (5, ["p90", "p95", "p99", "p99.9"]),
        (10, ["p95", "p99", "p99.9"]),
        (99, ["p99", "p99.9"]),
        (100, ["p99.9"]),
        (1000, []),
    ],
)
def test_shaky_percentiles_are_named(n, shaky):
    assert shaky_quantiles(n) == shaky


def test_a_hundred_thousand_values_take_well_under_a_second():
    sample = np.random.default_rng(1).lognormal(size=100_000).tolist()
    started = time.process_time()
    summarise(sample)
    assert time.process_time() - started < 1.0


def test_the_mean_is_that_of_all_values_whatever_the_first_and_the_last_are():
    assert mean([1.0, 4.0, 1.0]) == mean([1.0, 1.0, 4.0]) == 2.0
    assert mean([0.1] * 3) == 0.1 and mean([0.7] * 11) == 0.7
    assert mean([-2.0]) == -2.0
