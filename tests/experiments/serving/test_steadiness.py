import pickle
import random

import pytest

from benchhouse.experiments.serving import steadiness
from benchhouse.experiments.serving.steadiness import LatencyHistory, cold_start, drift, longest_silence, queue_growth

SECOND = 1_000_000_000


def history(times_s, e2e_ms=10.0):
    made = LatencyHistory()
    for at in times_s:
        made.add(round(at * SECOND), round(e2e_ms * 5e5), round(e2e_ms * 1e6))
    return made


def test_batches_hold_equally_many_requests_in_order():
    batches = history([number / 100 for number in range(600)]).batches(6.0, queued=False)
    assert len(batches) == 30
    assert [round(batch.at_s, 2) for batch in batches[:3]] == [0.1, 0.3, 0.5]
    assert {(batch.ttft_ms, batch.e2e_ms) for batch in batches} == {(5.0, 10.0)}


def test_a_batch_holds_eight_requests_and_twice_those_in_flight():
    for requests, e2e_ms, batches in [(47, 1, 0), (48, 1, 6), (500, 1, 30), (500, 250, 10), (500, 500, 0)]:
        made = history([number * 5 / requests for number in range(requests)], e2e_ms)
        assert len(made.batches(5.0, queued=False)) == batches


def test_a_long_load_takes_no_more_room_than_a_short_one():
    long = history(range(0, 100_000, 3))
    assert len(pickle.dumps(long)) < 30_000
    batches = long.batches(100_000.0, queued=False)
    assert len(batches) == 30
    assert batches[-1].at_s == pytest.approx(98_300, rel=0.01)


def test_histories_of_different_lengths_merge_as_if_they_were_one():
    early, late = [number / 50 for number in range(400)], [number / 2 for number in range(400)]
    one, other = history(early), history(late)
    one.merge(other)
    assert one.batches(200.0, queued=False) == history([*early, *late]).batches(200.0, queued=False)
    other.merge(history(early))
    assert other.batches(200.0, queued=False) == one.batches(200.0, queued=False)


def test_a_rising_and_a_falling_level_are_drift_and_noise_of_that_size_is_not():
    rng = random.Random(3)
    at = [float(number) for number in range(30)]
    for sign in (1, -1):
        rising = [100 + sign * number + rng.gauss(0, 3) for number in range(30)]
        found = drift(at, rising, queued=False, share=0.1)
        assert found and found.share == pytest.approx(sign * 0.2, abs=0.07)
    assert drift(at, [100 + rng.gauss(0, 15) for _ in at], queued=False, share=0.1) is None


def test_a_walk_is_no_drift_of_an_open_loop():
    """As a queue near its capacity: each batch is the one before and a step. Taken as independent, many would drift."""
    found = {True: 0, False: 0}
    for seed in range(200):
        rng, level, means = random.Random(seed), 100.0, []
        for _ in range(30):
            level = 100 + 0.95 * (level - 100) + rng.gauss(0, 10)
            means.append(max(level, 1.0))
        for queued in found:
            found[queued] += drift(range(30), means, queued=queued, share=0.1) is not None
    assert found[True] <= 4
    assert found[False] > 40


def test_a_change_smoother_than_its_noise_is_a_drift_of_an_open_loop():
    rng = random.Random(4)
    for bend in (0.5, 1.0, 2.0):
        rising = [100 + 100 * (number / 29) ** bend + rng.gauss(0, 0.5) for number in range(30)]
        for means in (rising, rising[::-1]):
            found = drift(range(30), means, queued=True, share=0.1)
            assert found and (found.after > found.before) == (means is rising)
    few = [100 + 10 * (number / 2) ** 2 for number in range(8)]
    assert drift(range(8), few, queued=True, share=0.1) is None, "eight in a row are too often a chance"


def test_a_cold_start_is_the_first_batch_beyond_the_second_half():
    at = [float(number) for number in range(12)]
    found = cold_start(at, [50, 48, 30, *[10, 11, 10] * 3], queued=False, factor=1.5)
    assert found and (found.before, round(found.after), found.until_s) == (50, 10, 3.0)
    assert cold_start(at, [14, 12, 12, *[10, 11, 10] * 3], queued=False, factor=1.5) is None
    assert cold_start(at, [50, 48, 30, *[10, 90, 30] * 3], queued=False, factor=1.5) is None


def test_the_longest_silence_is_held_against_the_others():
    rng = random.Random(2)
    usual = [(rng.expovariate(20), 0.0) for _ in range(300)]
    length, began, limit = longest_silence([*usual, (2.0, 1.5)])
    assert (length, began) == (2.0, 1.5)
    assert max(usual)[0] < limit < 2.0
    assert longest_silence(usual[:10]) is None


def test_a_queue_grows_when_it_does_so_to_the_end_and_beyond_chance():
    for due, ended, grown in [
        ([100] * 6, [100] * 6, None),
        ([100] * 6, [70] * 6, (180, 0.7)),
        ([100] * 6, [20, 60, 100, 100, 100, 100], None),  # filled up, then settled
        ([10] * 6, [8] * 6, None),  # twelve of sixty: a chance
        ([100, 100], [50, 50], None),  # too short to see it settle
    ]:
        assert queue_growth(due, ended) == grown


def test_the_limit_is_that_of_students_law():
    for df, limit in [(6, 9.15), (10, 6.24), (30, 4.50), (1e9, 3.90)]:
        assert steadiness._t_limit(df) == pytest.approx(limit, rel=0.04)
