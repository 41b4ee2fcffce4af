import pytest

from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.training.figures import are_apart, covered_s, find_warmup, progress_of, rate, share
from benchhouse.experiments.training.steps import TrainingStep, not_finite, steps_of


def step(number, rank=0, attempt=0, begin=0.0, took=1.0, **amounts):
    return TrainingStep(rank, number, attempt, begin, begin + took, amounts)


def records(*items, **writer):
    return Emitted(writer, list(items))


def test_a_steps_time_is_as_the_record_says_else_from_the_record_before():
    for record, times in [
        ({"t_start": 5.0, "t_end": 7.0, "t": 9.0}, (5.0, 7.0)),
        ({"step_s": 2.0, "t": 9.0}, (7.0, 9.0)),
        ({"step_s": 2.0, "checkpoint_s": 1.5, "t": 9.0}, (5.5, 7.5)),
        ({"t": 9.0}, (8.0, 9.0)),  # since the record before
    ]:
        (only,) = steps_of([records({"step": "none", "t": 8.0}, {"step": 3, **record}, rank=2, attempt=1)])
        assert (only.begin_s, only.end_s) == pytest.approx(times)
        assert (only.rank, only.number, only.attempt) == (2, 3, 1)


def test_a_first_record_without_a_time_of_its_own_and_one_that_ends_before_it_begins_are_no_steps():
    assert steps_of([records({"step": 1, "t": 8.0})]) == []
    assert steps_of([records({"step": 1, "t_start": 8.0, "t_end": 7.0})]) == []
    assert steps_of([records({"step": True, "step_s": 1.0, "t": 3.0}, {"loss": 1.0, "t": 4.0})]) == []


def test_numbers_that_are_not_finite_are_counted_by_name():
    given = [records({"step": 1, "loss": float("nan"), "t": 1.0}, {"step": 2, "loss": float("inf"), "lr": 0.1})]
    assert not_finite(given) == {"loss": 2}
    assert "loss" not in steps_of([records({"step": 1, "step_s": 1.0, "loss": float("nan"), "t": 1.0})])[0].amounts


def test_a_step_takes_as_long_as_its_slowest_rank():
    progress = progress_of([step(1, 0, begin=0.0, took=2.0), step(1, 1, begin=0.5, took=2.5)], world=2)
    (whole,) = progress.useful
    assert (whole.begin_s, whole.end_s, whole.took_s, whole.apart_s) == (0.0, 3.0, 2.5, 0.5)


def test_time_is_covered_once_and_ranks_that_do_not_wait_for_each_other_are_noticed():
    together = [step(n, rank, begin=n + 0.1 * rank) for n in (0, 1, 3) for rank in (0, 1)]
    steps = progress_of(together, world=2).useful
    assert covered_s(steps) == pytest.approx(2.1 + 1.1) and not are_apart(steps)
    alone = [step(n, rank, begin=n + 5.0 * rank) for n in range(3) for rank in (0, 1)]
    steps = progress_of(alone, world=2).useful
    assert covered_s(steps) == pytest.approx(8.0) and are_apart(steps)


def test_steps_that_are_done_again_or_not_by_all_are_lost():
    first = [step(number, rank, begin=number) for number in (1, 2) for rank in (0, 1)]
    alone = [step(3, 0, begin=3)]
    again = [step(number, rank, attempt=1, begin=10 + number) for number in (2, 3) for rank in (0, 1)]
    progress = progress_of([*first, *alone, *again], world=2)
    assert [(whole.number, whole.attempt) for whole in progress.useful] == [(1, 0), (2, 1), (3, 1)]
    assert sorted((whole.number, whole.attempt) for whole in progress.lost) == [(2, 0), (3, 0)]
    assert progress.lost_s == pytest.approx(2.0)


def test_rates_and_shares_are_of_all_ranks():
    given = [step(n, rank, begin=2.0 * n, took=2.0, tokens=100, data_s=0.5) for n in range(4) for rank in (0, 1)]
    steps = progress_of(given, world=2).useful
    assert rate(steps, "tokens") == pytest.approx(800 / 8.0)
    assert share(steps, "data_s") == pytest.approx(0.25)
    assert rate(steps, "samples") is None and share(steps, "comm_s") is None


def test_warmup_is_as_asked_or_up_to_the_change_point_or_the_first_step():
    steady = [1.0, 1.01, 0.99] * 10
    assert find_warmup(steady, 4).steps == 4
    assert find_warmup(steady, None).steps == 1
    slow = find_warmup([9.0, *[2.0, 2.02, 1.98, 2.01, 1.99], *steady], None)
    assert slow.steps == 6 and "change point" in slow.why
    assert find_warmup([1.0], None).steps == 0
    late = find_warmup([*steady, *[0.5, 0.51, 0.49] * 5], None)  # faster at the end is no warm-up
    assert late.steps == 1
