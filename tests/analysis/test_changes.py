"""Change points and alarms, on planted steps and on nothing at all. The full table is benchmarks/change_points.py."""

import math
from itertools import pairwise

import numpy as np
import pytest
from tables import check_table

from benchhouse.analysis.autocorrelated_changes import believe
from benchhouse.analysis.changes import find_changes
from benchhouse.analysis.online import Baseline, learn, notice, watch
from benchhouse.analysis.segments import halve, segment


def noise(kind, n, seed, spread=0.02):
    rng = np.random.default_rng([seed, n])
    if kind == "gauss":
        return spread * rng.standard_normal(n)
    if kind == "t3":
        return spread * rng.standard_t(3, n) / math.sqrt(3)
    drawn = np.zeros(n)
    for at in range(1, n):
        drawn[at] = 0.5 * drawn[at - 1] + spread * math.sqrt(0.75) * rng.standard_normal()
    return drawn


@check_table("kind", ["gauss", "t3", "ar1"])
def test_steps_of_ten_percent_are_found_at_their_places(kind):
    values = 100.0 * (1.0 + noise(kind, 200, 3))
    values[80:] *= 1.1
    values[140:] /= 1.1
    found = find_changes(values.tolist()).changes
    assert [round(change.index / 5) for change in found] == [16, 28]
    assert found[0].low < 0.1 < found[0].high
    assert found[0].after > found[0].before and found[1].after < found[1].before


@pytest.mark.parametrize("kind", ["gauss", "t3", "ar1"])
def test_noise_alone_seldom_looks_like_a_change(kind):
    alarms = sum(len(find_changes((1.0 + noise(kind, 200, seed)).tolist()).changes) for seed in range(50))
    assert alarms <= 8  # 10000 runs: below 1 per 1000; one history may have several, so fewer histories would not tell


def test_far_shocks_that_fade_are_no_changes():
    alarms = 0
    for seed in range(30):
        shocks = np.random.default_rng([seed, 85]).standard_t(3, 200)
        drawn = np.zeros(200)
        for at in range(1, 200):
            drawn[at] = 0.85 * drawn[at - 1] + 0.006 * shocks[at]
        alarms += len(find_changes((1.0 + drawn).tolist()).changes)
    assert alarms <= 6


def test_large_changes_do_not_hide_behind_the_memory_they_look_like():
    for seed in range(10):
        values = 1.0 + noise("ar1", 200, seed)
        values[85:] *= 1.1
        values[138:] /= 1.1
        found = [change.index for change in find_changes(values.tolist()).changes]
        assert all(any(abs(at - place) <= 5 for at in found) for place in (85, 138))


def test_all_places_are_weighed_and_add_up_to_the_changes_there_are():
    x = noise("ar1", 200, 4)
    x[100:] += 0.1
    one = np.ones(1)
    belief = believe(x[None, :], 0.0 * one, 0.5 * one, 0.0173 * one, 0.05 * one, 0.01, 10)
    assert belief.chances[0, 98:103].sum() == pytest.approx(1.0, abs=0.05)
    assert belief.changing[0] > belief.steady[0] + 10.0


def test_what_got_worse_is_told_no_later_than_what_got_better():
    values = 100.0 * (1.0 + noise("ar1", 140, 11))
    baseline, later = learn(values[:100].tolist()), (values[100:] * 1.05).tolist()
    assert watch(baseline, later, "lower").at <= watch(baseline, later, "higher").at


def test_one_far_run_raises_no_alarm():
    values = 100.0 * (1.0 + noise("ar1", 130, 11))
    baseline, later = learn(values[:100].tolist()), [float(np.median(values[:100]))] * 9
    assert watch(baseline, [*later, 10_000.0], "lower") is None


@pytest.mark.parametrize("kind", ["gauss", "t3", "ar1"])
def test_a_step_of_five_percent_is_mostly_told_within_three_runs(kind):
    told = []
    for seed in range(60):
        values = 100.0 * (1.0 + noise(kind, 110, seed))
        baseline = learn(values[:100].tolist())
        told.append(watch(baseline, (values[100:103] * 1.05).tolist(), "lower", values[99]) is not None)
    assert sum(told) > 30


def test_the_run_before_the_first_new_one_tells_what_it_remembers():
    baseline = Baseline(level=0.0, spread=0.02, memory=0.8, n=10_000, logs=True)
    later = [math.exp(0.03)] * 3
    assert watch(baseline, later, "lower", math.exp(-0.02)) is not None
    assert watch(baseline, later, "lower", math.exp(0.03)) is None


def test_one_run_raises_no_alarm_and_three_do_where_noise_remembers():
    baseline = Baseline(level=0.0, spread=0.02, memory=0.5, n=100, logs=True)
    assert watch(baseline, [1.0] * 9 + [2.0], "lower") is None
    assert watch(baseline, [1.0] * 9 + [2.0] * 3, "lower") is not None


def test_one_far_run_of_the_baseline_does_not_blind_it():
    values = 100.0 * (1.0 + noise("gauss", 110, 11))
    values[40] = 5000.0
    assert watch(learn(values[:100].tolist()), (values[100:] * 1.1).tolist(), "lower").worse is True


def test_one_far_run_of_a_short_baseline_does_not_blind_it_either():
    for seed in range(10):
        values = 100.0 * (1.0 + noise("gauss", 20, seed, 0.005))
        values[7] = 150.0
        alarm = watch(learn(values[:15].tolist()), (values[15:] * 1.1).tolist(), "lower")
        assert alarm.at <= 3


def test_noise_that_remembers_is_seen_as_such():
    found = find_changes((1.0 + noise("ar1", 1000, 1)).tolist())
    assert found.noise.memory == pytest.approx(0.5, abs=0.15)
    assert find_changes((1.0 + noise("gauss", 1000, 1)).tolist()).noise.memory == 0.0


def test_one_far_outlier_is_no_change():
    values = (1.0 + noise("gauss", 60, 2)).tolist()
    values[30] = 9.0
    assert find_changes(values).changes == ()


def test_a_change_below_the_floor_is_not_reported():
    values = [100.0] * 30 + [100.5] * 30
    assert find_changes(values).changes == ()
    assert [change.index for change in find_changes(values, floor=0.001).changes] == [30]


def test_exact_values_with_a_step_have_one_change():
    found = find_changes([0.9] * 20 + [0.8] * 20).changes
    assert [change.index for change in found] == [20]
    assert found[0].change == pytest.approx(-1 / 9)


def test_values_of_zero_and_below_are_taken_in_their_unit():
    values = noise("gauss", 60, 5, spread=0.1)
    values[30:] += 5.0
    (change,) = find_changes(values.tolist()).changes
    assert abs(change.index - 30) <= 1
    assert change.after == pytest.approx(5.0, abs=0.2)


def test_few_runs_have_no_changes_and_say_that_they_are_few():
    assert find_changes([1.0, 2.0, 3.0]).noise is None
    assert find_changes([]).changes == ()


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError):
        find_changes([1.0] * 20 + [math.nan])


def test_the_exact_cuts_cost_no_more_than_the_rough_ones():
    values = noise("gauss", 300, 7)
    values[100:200] += 0.05

    def cost(cuts):
        edges = [0, *cuts, len(values)]
        parts = (values[a:b] for a, b in pairwise(edges))
        return sum(((part - part.mean()) ** 2).sum() for part in parts) + 0.004 * len(cuts)

    assert cost(segment(values, 0.004, 5)) <= cost(halve(values, 0.004, 5)) + 1e-12


def test_a_step_raises_an_alarm_within_a_few_runs():
    values = 100.0 * (1.0 + noise("gauss", 140, 11))
    baseline = learn(values[:100].tolist())
    assert watch(baseline, values[100:].tolist(), "lower") is None
    alarm = watch(baseline, (values[100:] * 1.05).tolist(), "lower")
    assert alarm.at <= 8 and alarm.worse is True
    assert alarm.change == pytest.approx(0.05, abs=0.03)
    assert watch(baseline, (values[100:] * 1.05).tolist(), "higher").worse is False


def test_a_slow_drift_can_not_walk_the_baseline():
    values = 100.0 * (1.0 + noise("gauss", 200, 13))
    baseline = learn(values[:100].tolist())
    drift = values[100:] * (1.0 + 0.001 * np.arange(100))  # a twentieth of the noise each run
    alarm = watch(baseline, drift.tolist(), "lower")
    assert alarm is not None and alarm.worse and 10 < alarm.at < 80


def test_a_metric_that_falls_to_zero_raises_an_alarm():
    values = (100.0 * (1.0 + noise("gauss", 30, 17))).tolist()
    assert watch(learn(values), [0.0, 0.0, 0.0], "higher").worse is True


def test_few_runs_make_no_baseline():
    assert learn([1.0, 1.1, 0.9]) is None


@check_table("spread", [0.0, 0.0002, 0.002])
@check_table("n, place", [(10, 7), (12, 8), (20, 7), (20, 16), (22, 8), (30, 6), (30, 8), (40, 36)])
def test_a_step_is_placed_at_its_first_run_in_short_histories(n, place, spread):
    for seed in range(5):
        values = 35.59 * (1.0 + noise("gauss", n, seed, spread))
        values[place:] *= 38.09 / 35.59
        (change,) = find_changes(values.tolist()).changes
        assert change.index == place
        assert (change.before, change.after) == pytest.approx((35.59, 38.09), rel=0.003)


def test_two_runs_at_the_end_are_no_level_yet_and_none_is_placed_before_them():
    assert find_changes([35.59] * 8 + [38.09] * 2).changes == ()


def test_the_noise_of_quiet_runs_does_not_remember():
    values = 35.59 * (1.0 + 0.0002 * np.sin(np.arange(15) / 3.0))
    assert learn(values.tolist()).memory == 0.0


@check_table("spread", [0.0002, 0.004])
def test_a_large_step_after_few_runs_raises_an_alarm_at_its_second_or_third_run(spread):
    values = 35.59 * (1.0 + spread * np.sin(np.arange(15) / 3.0))  # as if each remembered the run before
    later = [35.59, 35.60, *([35.59 * 1.076] * 10)]
    alarm = watch(learn(values.tolist()), later, "lower", values[-1])
    assert alarm.since == 2 and alarm.at <= 4
    assert alarm.change == pytest.approx(0.076, abs=0.005)


def test_an_alarm_tells_the_level_that_there_is_now_and_ends_when_it_came_back():
    values = 100.0 * (1.0 + noise("gauss", 160, 19, 0.01))
    baseline, steps = learn(values[:100].tolist()), np.ones(60)
    steps[10:] = 1.08
    steps[30:] = 1.2
    alarm = watch(baseline, (values[100:] * steps).tolist(), "lower")
    assert alarm.since == 10 and alarm.change == pytest.approx(0.2, abs=0.01)
    steps[30:] = 1.0
    assert watch(baseline, (values[100:] * steps).tolist(), "lower") is None
    steps[50:] = 1.1
    alarm = watch(baseline, (values[100:] * steps).tolist(), "lower")
    assert alarm.since == 50 and alarm.change == pytest.approx(0.1, abs=0.01)


SHAPES = {
    "skewed": lambda rng, n: 1.0 + 0.02 * rng.gamma(1.3, 1.0, n),
    "exponential": lambda rng, n: 1.0 + 0.02 * rng.exponential(1.0, n),
    "log-normal": lambda rng, n: 1.0 + 0.01 * rng.lognormal(0.0, 1.0, n),
    "modes 20:80": lambda rng, n: (1.0 + 0.3 * (rng.random(n) < 0.2)) * (1.0 + 0.01 * rng.standard_normal(n)),
    "modes 50:50": lambda rng, n: (1.0 + 0.3 * (rng.random(n) < 0.5)) * (1.0 + 0.01 * rng.standard_normal(n)),
    "rare counts": lambda rng, n: rng.poisson(0.3, n).astype(float),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_of_any_shape_has_few_changes_and_their_intervals_hold_no_zero(shape):
    found = [
        change
        for seed in range(30)
        for change in find_changes(SHAPES[shape](np.random.default_rng([seed, 3]), 200).tolist()).changes
    ]
    assert len(found) <= 6  # 6000 runs: 1 per 1000
    assert all(change.low is None or change.low * change.high > 0.0 for change in found)


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_of_any_shape_raises_few_alarms(shape):
    alarms = 0
    for seed in range(40):
        values = SHAPES[shape](np.random.default_rng([seed, 4]), 200).tolist()
        alarms += notice(learn(values[:100]), values[100:], "lower", values[99]) is not None
    assert alarms <= 8  # of 4000 runs; 4 are expected at most, and more than 8 have a chance of 2%


def test_rounded_values_that_seem_to_remember_divide_nothing_by_zero():
    with np.errstate(all="raise"):
        for seed in range(20):
            drawn = noise("ar1", 20, seed, 0.004)
            find_changes(np.round(100.0 * (1.0 + drawn)).tolist())
        find_changes([5.0] * 200)


@pytest.mark.parametrize("spread", [0.005, 0.02])
def test_a_slow_drift_is_called_a_drift_and_not_cut_into_steps(spread):
    drifts = []
    for seed in range(8):
        found = find_changes(((1.0 + 0.0002 * np.arange(400)) * (1.0 + noise("gauss", 400, seed, spread))).tolist())
        drifts += found.drifts if not found.changes else ()
    assert len(drifts) >= 7
    assert np.mean([drift.change for drift in drifts]) == pytest.approx(0.08, abs=0.01)


def test_a_drift_begins_where_it_leaves_the_level_and_ends_at_a_step():
    level = np.concatenate([np.ones(150), 1.0 + 0.001 * np.arange(150), np.full(100, 1.3)])
    found = find_changes((level * (1.0 + noise("gauss", 400, 6, 0.005))).tolist())
    (change,), (drift,) = found.changes, found.drifts
    assert change.index == 300 and change.change == pytest.approx(1.3 / 1.15 - 1.0, abs=0.01)
    assert abs(drift.start - 150) <= 15 and drift.end == 300
    assert drift.change == pytest.approx(0.15, abs=0.02)


def test_a_step_between_two_levels_is_no_drift():
    for seed in range(10):
        values = 1.0 + noise("gauss", 200, seed)
        values[90:] *= 1.05
        found = find_changes(values.tolist())
        assert (len(found.changes), found.drifts) == (1, ())


def test_a_baseline_of_a_drift_is_where_it_ended():
    values = 100.0 * (1.0 - 0.001 * np.arange(100)) * (1.0 + noise("gauss", 100, 5, 0.005))
    assert math.exp(learn(values.tolist()).level) == pytest.approx(90.0, rel=0.01)
