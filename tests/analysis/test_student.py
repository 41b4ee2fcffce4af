"""Student's t against printed tables, and Welch's test against published examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import check_table

from benchhouse.analysis.student import critical_t, incomplete_beta, two_sided_p, welch_df


@check_table(
    "confidence, df, expected",
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.30265),
        (0.95, 5, 2.57058),
        (0.95, 8, 2.30600),
        (0.95, 30, 2.04227),
        (0.99, 1, 63.6567),
        (0.99, 10, 3.16927),
        (0.90, 4, 2.13185),
        (0.95, 1e7, 1.95996),
    ],
)
def test_critical_values_match_the_printed_table(confidence, df, expected):
    assert critical_t(confidence, df) == pytest.approx(expected, rel=1e-5)


@given(st.floats(0.5, 0.999), st.floats(1.0, 500.0))
def test_critical_value_and_tail_probability_invert_each_other(confidence, df):
    assert two_sided_p(critical_t(confidence, df), df) == pytest.approx(1.0 - confidence, rel=1e-6)


def test_one_degree_of_freedom_is_the_cauchy_distribution():
    assert two_sided_p(1.0, 1.0) == pytest.approx(0.5)
    assert two_sided_p(float("inf"), 3.0) == 0.0


@check_table(
    "a, b, x, expected",
    [
        (2, 3, 0.4, 0.5248),  # the chance of two heads or more in four throws
        (2, 3, 0.7, 0.9163),
        (3, 2, 0.3, 0.0837),
        (1, 1, 0.25, 0.25),
        (0.5, 0.5, 0.5, 0.5),
        (2, 3, 0.0, 0.0),
        (2, 3, -1.0, 0.0),
        (2, 3, 1.0, 1.0),
        (2, 3, 2.0, 1.0),
    ],
)
def test_the_incomplete_beta_function_is_that_of_binomial_chances(a, b, x, expected):
    assert incomplete_beta(a, b, x) == pytest.approx(expected, abs=1e-8)


def test_degrees_of_freedom_are_those_of_welch():
    assert welch_df(1.0, 1.0, 5, 5) == pytest.approx(8.0)
    assert welch_df(4.0, 1.0, 5, 9) == pytest.approx(1.0 / (0.64 / 4 + 0.04 / 8))
    assert welch_df(0.0, 1.0, 5, 9) == pytest.approx(8.0)
