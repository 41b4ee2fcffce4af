"""The truth test: curves whose crossing is known, with planted noise."""

import math

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.pareto import MetricScale, Vertex, cross, drawn, frontier, gap, scale_of_level, scale_of_value

EFS = (16, 32, 64, 128, 256)


def recall(ef):
    """Near to what HNSW has on real embeddings: .74, .84, .91, .95, .98; nowhere straight on any scale."""
    return 1.0 - 0.262 * (ef / 16) ** (-0.7 - 0.07 * math.log(ef / 16))


def qps(ef):
    return 1e6 / (30 + ef)


def at_recall(level):
    low, high = 16.0, 256.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if recall(middle) < level else (low, middle)
    return qps(low)


def sweep(source, n, spread_x, spread_y, efs=EFS, faster=1.0):
    return [
        Vertex(
            ef,
            np.clip(source.normal(recall(ef), spread_x, n), 0.0, 1.0).tolist(),
            (faster * qps(ef) * source.normal(1.0, spread_y, n)).tolist(),
        )
        for ef in efs
    ]


def crossing(knots, level, direction="higher", seed=1, y_scale=None):
    x_scale = scale_of_level([x for knot in knots for x in knot.x], direction, level)
    y_scale = y_scale or scale_of_value([y for knot in knots for y in knot.y])
    return cross(knots, level, x_scale=x_scale, y_scale=y_scale, direction=direction, seed=seed)


@pytest.mark.parametrize(
    ("spread_x", "spread_y", "level", "n"),
    [
        pytest.param(0.0, 0.03, 0.95, 3, id="exact recall-3"),
        pytest.param(0.0, 0.03, 0.95, 10, id="exact recall-10"),
        pytest.param(0.002, 0.03, 0.95, 5, id="little noise-5"),
        pytest.param(0.01, 0.05, 0.93, 3, id="much noise-3"),
        pytest.param(0.01, 0.05, 0.93, 10, id="much noise-10"),
        pytest.param(0.03, 0.05, 0.93, 5, id="recall that goes back-5"),
    ],
)
def test_intervals_cover_the_truth_and_the_middle_is_not_off(n, spread_x, spread_y, level):
    source, truth = np.random.default_rng([n, 1]), at_recall(level)
    found = [crossing(sweep(source, n, spread_x, spread_y), level, seed=seed) for seed in range(50)]
    assert sum(one.interval.covers(truth) for one in found) >= 44
    errors = [math.log(one.value / truth) for one in found]
    standard_error = np.std(errors) / math.sqrt(len(errors))
    assert abs(np.mean(errors)) <= 0.005 + 3.0 * standard_error


def test_without_noise_the_curve_is_within_a_third_of_a_percent_everywhere():
    knots = [Vertex(ef, [recall(ef)] * 3, [qps(ef)] * 3) for ef in EFS]
    for level in np.linspace(recall(17), recall(250), 40):
        assert crossing(knots, float(level)).value == pytest.approx(at_recall(level), rel=0.0033)


@pytest.mark.parametrize("n", [3, 5])
def test_equal_targets_are_called_different_one_time_in_twenty_and_a_planted_fifth_is_found(n):
    source, called, found = np.random.default_rng([n, 2]), 0, 0
    for seed in range(40):
        one, twin, faster = (crossing(sweep(source, n, 0.002, 0.03, faster=f), 0.95, seed=seed) for f in (1, 1, 1.2))
        called += gap(one, twin, MetricScale("log"), "higher", seed=seed).verdict != "no evidence of a difference"
        judged = gap(one, faster, MetricScale("log"), "higher", seed=seed)
        found += judged.verdict == "better"
    assert called <= 7  # two are expected; more than seven happen once in a thousand times
    assert found >= (20 if n == 3 else 38)


def test_a_gap_is_told_with_its_interval():
    source = np.random.default_rng(3)
    a, b = (crossing(sweep(source, 8, 0.001, 0.02, faster=faster), 0.95) for faster in (1.0, 0.5))
    judged = gap(a, b, MetricScale("log"), "higher", seed=1)
    assert judged.change == pytest.approx(-0.5, abs=0.05)
    assert judged.change_interval.covers(-0.5)
    assert judged.verdict == "worse"
    assert gap(b, a, MetricScale("log"), "lower", seed=1).verdict == "worse"
    assert judged.p_value < 1e-6


def test_nothing_is_extrapolated():
    knots = sweep(np.random.default_rng(1), 5, 0.0, 0.02)
    short, beyond = crossing(knots, 0.999), crossing(knots, 0.5)
    assert (short.reach, short.value, short.interval) == ("short", None, None)
    assert knots[short.nearest].place == 256
    assert (beyond.reach, beyond.value) == ("beyond", None)
    assert knots[beyond.nearest].place == 16


def test_of_a_metric_that_should_be_low_short_means_too_high():
    knots = [Vertex(c, [float(c)], [100.0 * c]) for c in (2, 4, 8)]
    assert crossing(knots, 1.0, "lower").reach == "short"
    assert crossing(knots, 9.0, "lower").reach == "beyond"
    assert crossing(knots, 4.0, "lower").value == pytest.approx(400.0)


def test_a_curve_that_goes_back_is_pooled():
    exact = [Vertex(1, [0.8] * 3, [100.0] * 3), Vertex(2, [0.92] * 3, [60.0] * 3), Vertex(3, [0.90] * 3, [40.0] * 3),
             Vertex(4, [0.99] * 3, [10.0] * 3)]  # fmt: skip
    found = crossing(exact, 0.91)
    middle_miss = math.sqrt(0.08 * 0.10)  # of the two that were pooled, whose qps is the middle of both, too
    assert crossing(exact, 1.0 - middle_miss).value == pytest.approx(math.sqrt(60.0 * 40.0))
    assert found.value == pytest.approx(math.sqrt(60.0 * 40.0), rel=0.05)


def test_a_sweep_may_run_the_other_way_and_come_in_any_order():
    there = sweep(np.random.default_rng(5), 5, 0.001, 0.02)
    back = [knot._replace(place=1.0 / knot.place) for knot in there]
    shuffled = [there[at] for at in (3, 0, 4, 1, 2)]
    assert crossing(back, 0.95).value == pytest.approx(crossing(there, 0.95).value)
    assert crossing(shuffled, 0.95).interval == crossing(there, 0.95).interval


def test_of_points_that_tie_the_first_that_is_good_enough_counts():
    knots = [Vertex(1, [0.9] * 3, [90.0] * 3), Vertex(2, [1.0] * 3, [50.0] * 3), Vertex(4, [1.0] * 3, [20.0] * 3)]
    assert crossing(knots, 1.0).value == pytest.approx(50.0)
    assert crossing(knots, 1.0).place == pytest.approx(2.0)
    assert 50.0 < crossing(knots, 0.95).value < 90.0


def test_one_repetition_gives_a_value_and_no_interval():
    found = crossing(sweep(np.random.default_rng(2), 1, 0.0, 0.02), 0.95)
    assert (found.n, found.interval, found.method) == (1, None, "none, too few repetitions")
    assert found.value == pytest.approx(at_recall(0.95), rel=0.1)
    assert gap(found, found, MetricScale("log"), "higher", seed=1).verdict == "too few repetitions"


def test_a_single_point_is_met_only_where_it_is():
    flat = [Vertex(0.0, [1.0] * 5, [19.0, 20.0, 21.0, 20.0, 20.0])]
    assert crossing(flat, 1.0).value == pytest.approx(20.0)
    assert crossing(flat, 1.0).interval.covers(20.0)
    assert crossing(flat, 0.95).reach == "beyond"


def test_a_value_that_may_be_zero_or_less_is_taken_as_it_is():
    knots = [Vertex(1, [1.0] * 3, [-4.0, -4.1, -3.9]), Vertex(2, [4.0] * 3, [4.0, 4.1, 3.9])]
    found = crossing(knots, 2.0)
    assert found.value == pytest.approx(0.0, abs=1e-6)
    assert gap(found, found, MetricScale("linear"), "higher", seed=1).change_interval is None


def test_the_drawn_curve_goes_through_the_points_and_never_turns():
    knots = [Vertex(ef, [recall(ef)], [qps(ef)]) for ef in EFS]
    line = drawn(knots, scale_of_level([recall(ef) for ef in EFS], "higher", 0.9), scale_of_value([1.0]))
    assert line[0] == pytest.approx((recall(16), qps(16)))
    assert line[-1] == pytest.approx((recall(256), qps(256)))
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)


@check_table(
    "points, directions, kept",
    [
        ([(1, 1), (2, 2)], ("higher", "higher"), [1]),
        ([(1, 3), (2, 2), (3, 1), (2, 1)], ("higher", "higher"), [0, 1, 2]),
        ([(1, 3), (2, 2), (3, 1)], ("lower", "higher"), [0]),
        ([(1, 1), (1, 1)], ("higher", "higher"), [0, 1]),
        ([(1, 2), (1, 1)], ("higher", "higher"), [0]),
        ([(2, 1), (1, 1)], ("higher", "higher"), [0]),
    ],
)
def test_the_frontier_contains_the_undominated_points(points, directions, kept):
    assert frontier(points, directions) == kept


@check_table(
    "bounds, kept",
    [
        ([(0.5, 0.5), (0.5, 0.5)], [1]),
        ([(0.5, 0.5), (0.51, 0.5)], [0, 1]),
        ([(0.0, 0.0), (0.0, 1.01)], [0, 1]),
        ([(0.0, 0.0), (0.0, 0.0)], [1]),
    ],
)
def test_a_difference_within_both_error_bounds_does_not_dominate(bounds, kept):
    assert frontier([(1.0, 1.0), (2.0, 2.0)], ("higher", "higher"), bounds) == kept
    assert frontier([(-1.0, 1.0), (-2.0, 2.0)], ("lower", "higher"), bounds) == kept
    assert frontier([(1.0, 1.0), (1.0, 1.0)], ("higher", "higher"), bounds) == [0, 1]


def test_a_scale_bends_and_straightens():
    for scale, value, bent in (
        (MetricScale("linear"), -2.0, -2.0),
        (MetricScale("log"), 100.0, math.log(100.0)),
        (MetricScale("miss"), 0.9, -math.log(0.1)),
    ):
        assert scale.bend(value) == pytest.approx(bent) and scale.straighten(bent) == pytest.approx(value)
    assert MetricScale("miss", 0.01).bend(1.0) == pytest.approx(-math.log(0.01))
    assert [MetricScale(kind).label("x") for kind in ("miss", "log", "linear")] == ["−log(1 − x)", "log x", "x"]
    assert scale_of_level([1.0, 1.0], "higher", 1.0) == MetricScale("miss", 0.5)


def test_scales_are_chosen_by_what_the_numbers_are():
    assert scale_of_level([0.5, 1.0], "higher", 0.95).kind == "miss"
    assert scale_of_level([0.5, 1.0], "lower", 0.95).kind == "log"
    assert scale_of_level([0.0, 3.0], "lower", 1.0).kind == "linear"
    assert scale_of_level([0.9, 0.996, 1.0], "higher", 0.95).floor == pytest.approx(0.002)
    assert scale_of_value([0.0, 1.0]).kind == "linear"
