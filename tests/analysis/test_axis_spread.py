"""How a number spreads over a sweep, and which axis moves it."""

import random

import pytest

from benchhouse.analysis.axis_spread import axis_spreads, spread


def grid(value):
    return [({"a": a, "b": b}, value(a, b)) for a in range(10) for b in range(10)]


def test_the_axis_that_moves_the_number_explains_it():
    first, second = axis_spreads(grid(lambda a, b: 10.0 * a + 0.1 * b), "higher")
    assert (first.axis, first.levels, first.best, first.worst) == ("a", 10, 9, 0)
    assert first.explained > 0.99 > 0.01 > second.explained
    assert first.best_median == pytest.approx(90.45)


def test_lower_is_better_turns_best_and_worst_round():
    assert axis_spreads(grid(lambda a, b: a), "lower")[0].best == 0


def test_an_axis_of_many_values_does_not_explain_noise():
    chance = random.Random(1)
    points = [({"many": at // 2, "few": at % 3}, chance.gauss(0.0, 1.0)) for at in range(600)]
    assert all(axis.explained < 0.12 for axis in axis_spreads(points, "higher"))


def test_an_axis_that_names_every_point_is_left_out():
    assert [axis.axis for axis in axis_spreads([({"id": at, "half": at % 2}, at) for at in range(8)], None)] == ["half"]


def test_quartiles_are_of_type_seven():
    found = spread([4.0, 1.0, 3.0, 2.0])
    assert (found.minimum, found.lower_quartile, found.median, found.upper_quartile, found.maximum) == (
        1.0, 1.75, 2.5, 3.25, 4.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match="no values"):
        spread([])
