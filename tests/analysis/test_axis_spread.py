"""How a number spreads over a sweep, and which axis moves it."""

import random

import pytest

from benchhouse.analysis.axis_spread import AxisSpread, axis_spreads, spread


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
    assert found.points == 4


def test_the_share_that_an_axis_explains_is_epsilon_squared():
    points = [({"a": a}, value) for a, value in (("x", 1.0), ("x", 2.0), ("y", 5.0), ("y", 6.0), ("y", 7.0))]
    explained = 1.0 - (2.5 / 3) / (26.8 / 4)
    assert axis_spreads(points, "higher") == [AxisSpread("a", 2, "y", 6.0, "x", 1.5, pytest.approx(explained))]
    assert axis_spreads(points, None)[0].best == "y"
    assert axis_spreads([(axes, 3.0) for axes, _ in points], "higher")[0].explained == 0.0
    partial = [*points, ({}, 9.0)]
    assert [(row.levels, row.explained) for row in axis_spreads(partial, "higher")] == [(2, 0.0)]
    assert axis_spreads(points[:2], "higher") == []


def test_values_of_an_axis_that_are_no_numbers_are_told_as_text():
    points = [({"on": at % 2 == 0, "list": [at // 2]}, float(at)) for at in range(4)]
    found = {row.axis: (row.best, row.worst) for row in axis_spreads(points, "higher")}
    assert found == {"list": ("[1]", "[0]"), "on": ("False", "True")}
    assert [row.axis for row in axis_spreads(points, "higher")] == ["list", "on"]
