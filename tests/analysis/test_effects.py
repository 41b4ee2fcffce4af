"""Effect sizes on samples small enough to work out by hand."""

import pytest
from tables import check_table

from benchhouse.analysis.compare import cliffs_delta, hedges_g


def test_hedges_g_by_hand():
    # Means 2 and 4, pooled standard deviation 1, correction 1 - 3 / (4 * 4 - 1).
    assert hedges_g([1, 2, 3], [3, 4, 5]) == pytest.approx(2.0 * 0.8)
    assert hedges_g([10, 20, 30], [30, 40, 50]) == pytest.approx(2.0 * 0.8)  # in any unit


@check_table("a, b, expected", [([1.0], [1.0, 2.0], None), ([1, 1], [2, 2], None), ([1, 1], [1, 1], 0.0)])
def test_hedges_g_without_spread(a, b, expected):
    assert hedges_g(a, b) == expected


@check_table(
    "a, b, expected",
    [([1, 2], [3, 4], 1.0), ([3, 4], [1, 2], -1.0), ([1, 2], [1, 2], 0.0), ([1, 3], [2], 0.0), ([1, 2], [2, 3], 0.75)],
)
def test_cliffs_delta_counts_pairs(a, b, expected):
    assert cliffs_delta(a, b) == expected
