"""Where the time of a training goes, checked against times that are known beforehand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchhouse.experiments.training.figures import progress_of, straggler_of
from benchhouse.experiments.training.reliability import PARTS, Interrupt, interrupt_interval, wall_of
from benchhouse.experiments.training.steps import TrainingStep


def step(number, rank=0, attempt=0, begin=0.0, took=1.0, **amounts):
    return TrainingStep(rank, number, attempt, begin, begin + took, amounts)


def parts(wall):
    return {name: pytest.approx(seconds) for name, seconds in wall.parts.items() if seconds}


def test_the_time_of_a_training_without_interrupts():
    steps = [step(1, begin=10.0), step(2, begin=11.0, checkpoint_s=0.5), step(3, begin=14.0)]
    wall = wall_of(progress_of(steps, 1), [], 8.0, 18.0)
    assert parts(wall) == {"startup": 2.0, "useful": 3.0, "checkpoint": 0.5, "between": 1.5, "exit": 3.0}
    assert (wall.goodput, wall.reliability) == (pytest.approx(0.3), 1.0)


def test_an_interrupt_costs_what_is_done_again_its_detection_and_the_restart():
    first = [step(number, begin=10.0 + number) for number in (0, 1, 2, 3)]  # up to 14; 0 and 1 are in the checkpoint
    again = [step(number, attempt=1, begin=20.0 + number) for number in (2, 3, 4)]  # 22 to 25
    wall = wall_of(progress_of([*first, *again], 1), [Interrupt(0, fault_s=14.5, noticed_s=16.0)], 9.0, 26.0)
    assert parts(wall) == {
        "startup": 1.0, "useful": 5.0, "lost": 2.5, "detection": 1.5, "restart": 6.0, "exit": 1.0,
    }  # fmt: skip
    assert (wall.detections_s, wall.restarts_s) == ([pytest.approx(1.5)], [pytest.approx(6.0)])
    assert wall.reliability == pytest.approx(1 - 10 / 17)


def test_a_hang_is_detected_from_the_last_step_on():
    wall = wall_of(progress_of([step(0, begin=1.0)], 1), [Interrupt(0, fault_s=0.0, noticed_s=7.0)], 0.0, 8.0)
    assert parts(wall) == {"startup": 1.0, "useful": 1.0, "detection": 5.0, "exit": 1.0}


def test_an_attempt_that_made_no_step_is_start_up_or_restart():
    again = [step(0, attempt=2, begin=10.0)]
    faults = [Interrupt(0, fault_s=2.0, noticed_s=3.0), Interrupt(1, fault_s=6.0, noticed_s=6.5)]
    wall = wall_of(progress_of(again, 1), faults, 0.0, 12.0)
    assert parts(wall) == {"startup": 2.0, "detection": 1.5, "restart": 6.5, "useful": 1.0, "exit": 1.0}


def test_steps_of_another_clock_give_no_goodput():
    assert wall_of(progress_of([step(0, begin=1.7e9)], 1), [], 0.0, 12.0) is None


moments = st.floats(0, 100, allow_nan=False)


@given(
    steps=st.lists(
        st.builds(
            lambda *about, saved: step(*about, checkpoint_s=saved),
            st.integers(0, 6), st.integers(0, 1), st.integers(0, 2), moments, st.floats(0, 20),
            saved=st.floats(0, 5),
        ),
        max_size=25,
    ),
    faults=st.lists(
        st.builds(Interrupt, st.integers(0, 3), moments, moments), max_size=4, unique_by=lambda fault: fault.attempt
    ),
)  # fmt: skip
def test_whatever_is_told_the_parts_are_there_and_add_up_to_the_wall_time(steps, faults):
    """Also of records that contradict each other."""
    wall = wall_of(progress_of([s for s in steps if s.end_s <= 100], 2), faults, 0.0, 100.0)
    assert wall.parts.keys() == PARTS.keys()
    assert all(seconds >= -1e-9 for seconds in wall.parts.values())
    assert math.fsum(wall.parts.values()) == pytest.approx(100.0)
    assert math.fsum(wall.detections_s) == pytest.approx(wall.parts["detection"])
    assert math.fsum(wall.restarts_s) == pytest.approx(wall.parts["restart"])


def test_the_interval_of_the_mean_time_to_interrupt_is_that_of_a_poisson_count():
    for count, low, high in [(0, 2.996, None), (1, 5.572, 0.0253), (3, 8.767, 0.6187), (10, 18.39, 4.795)]:
        shortest, longest = interrupt_interval(1000.0, count)
        assert shortest == pytest.approx(1000 / low, rel=1e-3)
        assert longest == (math.inf if high is None else pytest.approx(1000 / high, rel=2e-3))


def ranks_with(own_by_rank, count=40, since=0):
    """Steps in which each rank takes as long, and its own part is as given from `since` on, 10 ms before."""
    slowest = max(own_by_rank)
    rows = []
    for number in range(count):
        for rank, own in enumerate(own_by_rank):
            mine = own if number >= since else 0.010
            took = slowest if number >= since else 0.010
            rows.append(step(number, rank, begin=number, took=took, comm_s=took - mine))
    return progress_of(rows, len(own_by_rank)).useful


def test_the_straggler_is_named_from_its_own_time_also_when_it_becomes_slow_late():
    found = straggler_of(ranks_with([0.010, 0.030, 0.010]))
    assert (found.rank, found.first, found.last) == (1, 0, 39)
    assert "rank 1 is slow in steps 0 to 39: it needs 30 ms of its own in a step, the others 10" in found.message("")
    assert straggler_of(ranks_with([0.010, 0.010, 0.030], since=30)).rank == 2


def test_nobody_is_named_on_noise_few_steps_or_without_waits():
    assert straggler_of(ranks_with([0.010, 0.0105, 0.010])) is None  # below a tenth
    assert straggler_of(ranks_with([0.010, 0.030], count=9)) is None
    noisy = [step(n, r, begin=n, took=0.03, comm_s=0.02 * ((n * 7 + r * 3) % 2)) for n in range(60) for r in range(2)]
    assert straggler_of(progress_of(noisy, 2).useful) is None
    silent = [step(n, r, begin=n, took=0.03) for n in range(60) for r in range(2)]
    assert straggler_of(progress_of(silent, 2).useful) is None
    assert straggler_of(progress_of([step(n, begin=n, comm_s=0.0) for n in range(60)], 1).useful) is None
