"""Ranking: order and marks, and a winner that is only set apart from what it truly beats."""

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.ranking import holm, rank

LATENCIES = {"c": [30.0, 31.0, 29.0], "a": [10.0, 11.0, 9.0], "b": [10.2, 11.2, 9.1], "d": [40.0, 41.0, 39.0]}


def test_lower_is_better_puts_the_smallest_mean_first():
    ranked = rank(LATENCIES, "lower")
    assert [(row.name, row.place, row.mark) for row in ranked] == [
        ("a", 1, "best"),
        ("b", 2, "median"),
        ("c", 3, None),
        ("d", 4, "worst"),
    ]
    assert [row.distinguishable for row in ranked] == [False, False, True, True]
    assert ranked[0].p_value is None


def test_higher_is_better_turns_the_order_round():
    assert [row.name for row in rank(LATENCIES, "higher")] == ["d", "c", "b", "a"]


@check_table(
    "count, marks",
    [
        (0, []),
        (1, ["best"]),
        (2, ["best", "worst"]),
        (3, ["best", "median", "worst"]),
        (5, ["best", None, "median", None, "worst"]),
    ],
)
def test_marks_for_every_count(count, marks):
    assert [row.mark for row in rank({str(i): [float(i)] * 2 for i in range(count)}, "lower")] == marks


def test_the_last_is_the_worst_only_where_the_data_tell_it_from_the_best():
    ranked = rank({"a": [1.0, 1.4, 1.2], "b": [1.3, 1.1, 1.5]}, "lower")
    assert [(row.mark, row.distinguishable) for row in ranked] == [("best", False), (None, False)]


def test_one_repetition_is_neither_told_apart_nor_not():
    ranked = rank({"a": [1.0, 1.1], "b": [5.0]}, "lower")
    assert ranked[1].mark is None
    assert (ranked[1].p_value, ranked[1].distinguishable) == (None, None)


def test_equal_constants_share_a_place_and_different_ones_are_told_apart():
    ranked = rank({"x": [0.9] * 3, "y": [0.9] * 3, "z": [0.8] * 3}, "higher")
    assert [row.place for row in ranked] == [1, 1, 3]
    assert [row.distinguishable for row in ranked] == [False, False, True]


def test_an_empty_group_is_refused_by_name():
    with pytest.raises(ValueError, match="'b'"):
        rank({"a": [1.0], "b": []}, "lower")


def test_holm_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.01}, family=6) == pytest.approx({"a": 0.06})
    assert holm({}) == {}


@check_table("skewed", [False, True])
@check_table("groups, n", [(3, 5), (5, 10), (10, 10)])
def test_equal_groups_are_rarely_called_different(groups, n, skewed):
    source = np.random.default_rng([groups, n])
    rounds = 200
    wrong = 0
    for _ in range(rounds):
        shape = groups, n
        drawn = (source.exponential(10.0, shape) if skewed else source.normal(10.0, 1.0, shape)).tolist()
        wrong += any(row.distinguishable for row in rank({str(i): x for i, x in enumerate(drawn)}, "lower"))
    assert wrong / rounds <= 0.07
