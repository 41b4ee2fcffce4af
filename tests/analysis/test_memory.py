"""Noise that remembers is seen in earlier values, and widens intervals of sides that ran one after the other."""

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.compare import Pair, compare, compare_many
from benchhouse.analysis.memory import FEWEST, LEAST, memory_of, worth


def series(source, rows, n, memory):
    """Rows of n values about 1, in order of time."""
    shocks = source.standard_normal((rows, n))
    for at in range(1, n):
        shocks[:, at] = memory * shocks[:, at - 1] + (1.0 - memory**2) ** 0.5 * shocks[:, at]
    return 1.0 + 0.05 * shocks


@check_table("sizes", [[200], [5] * 60])
@check_table("memory", [0.0, 0.5, 0.8])
def test_memory_is_found_as_large_as_it_is_whatever_the_blocks(memory, sizes):
    source, found = np.random.default_rng(3), []
    for _ in range(40):
        blocks = [series(source, 1, size, memory)[0] * level for level, size in enumerate(sizes, start=1)]
        found.append(memory_of([block.tolist() for block in blocks]))
    assert np.median(found) == pytest.approx(memory, abs=0.1)


def test_levels_that_change_between_runs_are_no_memory():
    source = np.random.default_rng(5)
    found = [memory_of((series(source, 8, 10, 0.0) * np.arange(1, 9)[:, None]).tolist()) for _ in range(40)]
    assert np.mean(found) < 0.05


def test_too_few_values_tell_nothing():
    assert memory_of([[1.0, 2.0, 1.5] * ((FEWEST - 1) // 3)]) is None
    assert memory_of([[1.0, 2.0]] * FEWEST) is None  # no block of two has a memory
    assert memory_of([[1.0] * FEWEST]) is None  # nor have values without spread


def test_values_in_a_row_are_worth_what_the_theory_says():
    assert worth(5, 0.0) == (1.0, 4.0)
    # Variance of the mean 2.225 times that of independent ones, spread about it 0.694 of the whole.
    assert worth(5, 0.5).inflation == pytest.approx(2.225 / 0.69375)
    assert worth(5, 0.5).df == pytest.approx(4 * 0.6)


def test_a_memory_widens_the_interval_and_its_p_value():
    a, b = [10.0, 10.1, 9.9, 10.2, 9.8], [10.3, 10.4, 10.2, 10.5, 10.1]
    plain = compare(a, b, direction="lower", seed=1)
    wide = compare_many([Pair(a, b, "lower", 0.5)], seed=1)[0]
    assert (plain.verdict, wide.verdict) == ("worse", "no evidence of a difference")
    assert wide.change_interval.lo < plain.change_interval.lo < plain.change_interval.hi < wide.change_interval.hi
    assert wide.p_value > 0.05 > plain.p_value
    assert wide.method == "Welch t, widened for noise that remembers (0.50)"


@pytest.mark.parametrize(("memory", "most"), [(0.5, 0.06), (0.0, 0.06)])
def test_sides_in_a_row_are_seldom_called_different_once_a_history_is_known(memory, most):
    """A history of 30 values, then five of A, then five of B: without it one in six looks different."""
    source, n, rows = np.random.default_rng(11), 5, 500
    values = series(source, rows, 30 + 2 * n, memory).tolist()
    sides = [(row[30 : 30 + n], row[30 + n :]) for row in values]
    pairs = [Pair(a, b, None, memory_of([row[:30]], [a, b])) for (a, b), row in zip(sides, values, strict=True)]
    wrong = sum(found.verdict == "different" for found in compare_many(pairs, seed=1, resamples=199))
    assert wrong / rows <= most + 0.02  # two standard errors
    widened = np.mean([pair.memory >= LEAST for pair in pairs])
    assert widened > 0.9 if memory else widened < 0.2
