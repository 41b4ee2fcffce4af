"""What ran beside a trial is counted from what was seen, and differs only where it really does."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from tables import check_table
from trial_maker import make_trial

from benchhouse.results.comparisons import compare
from benchhouse.results.concurrent_trials import count_concurrent, describe_concurrent_trials
from benchhouse.schema.layout import WorkspaceFolder
from benchhouse.warehouse.ingest import collect

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def rows(*spans, host="node1", name="t"):
    """Trials that start and take so many seconds."""
    return [
        {"trial_id": f"{name}{at}", "host": host, "duration_s": took,
         "started": (START + timedelta(seconds=start)).isoformat(timespec="milliseconds")}
        for at, (start, took) in enumerate(spans)
    ]  # fmt: skip


def counted(*spans, **more):
    return [round(count, 3) for count in count_concurrent(rows(*spans, **more)).values()]


@check_table(
    "spans, expected",
    [
        ([(0, 10), (10, 10), (20, 10)], [0, 0, 0]),
        ([(0, 10), (9, 10)], [0.1, 0.1]),  # touch by a second
        ([(0, 10), (0, 10), (0, 10)], [2, 2, 2]),
        ([(0, 10), (0, 5)], [0.5, 1]),
        ([(0.0, 0.0004), (0.0004, 0.0004)], [0, 0]),  # starts are noted to the millisecond
        ([(0.0, 0.0015), (0.0015, 0.0015)], [0, 0]),
    ],
)
def test_others_are_counted_by_their_share_of_the_time(spans, expected):
    assert counted(*spans) == pytest.approx(expected, abs=2e-3)


def test_trials_on_other_hosts_are_no_neighbours():
    both = [*rows((0, 10), name="a"), *rows((0, 10), name="b", host="node2")]
    assert set(count_concurrent(both).values()) == {0.0}


def test_many_trials_are_counted_as_pair_by_pair():
    random.seed(3)
    spans = [(random.uniform(0, 100), random.uniform(0.5, 20)) for _ in range(60)]
    one_ms = 0.001
    for (start, took), count in zip(spans, count_concurrent(rows(*spans)).values(), strict=True):
        end = start + took - one_ms
        shared = [min(end, s + t - one_ms) - max(start, s) for s, t in spans]
        assert count == pytest.approx(sum(max(0.0, part) for part in shared) / (end - start) - 1, rel=0.02, abs=0.02)


@check_table(
    "means, texts",
    [
        ([0.0, 7.0], ["0 others", "7 others"]),
        ([0.0, 1.0], ["0 others", "1 other"]),
        ([1.0, 2.0], ["1 other", "2 others"]),
        ([0.0, 0.4], ["0 others", "0 others"]),  # ends that touch
        ([6.2, 7.0], ["6.2 others", "6.2 others"]),  # the last ones of a run have fewer
        ([7.0, 0.0, 6.5], ["6.5 others", "0 others", "6.5 others"]),
    ],
)
def test_sides_that_are_alike_have_the_same_words(means, texts):
    sides = [[{"trial_id": str(at)}] for at in range(len(means))]
    assert describe_concurrent_trials(sides, {str(at): mean for at, mean in enumerate(means)}) == texts


def make_run(workspace, run, executor, minute_of):
    folders = [
        make_trial(workspace, run, repetition, ef=ef, executor=executor, minute=minute_of(ef, repetition),
                   value=100 + repetition)
        for ef in range(8)
        for repetition in (1, 2, 3)
    ]  # fmt: skip
    collect(workspace, run, folders)


def differing(workspace, a, b):
    return {item.dimension: (item.a, item.b) for item in compare(workspace, a, b).differences}


def test_one_at_a_time_against_eight_at_once_is_named(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    make_run(workspace, "one-a", "local", lambda ef, repetition: ef * 3 + repetition)
    make_run(workspace, "one-b", "local", lambda ef, repetition: 100 + ef * 3 + repetition)
    make_run(workspace, "eight", "slurm", lambda ef, repetition: 200 + repetition)
    assert differing(workspace, "one-a", "one-b") == {}
    expected = {"executor": ("local", "slurm"), "ran beside a trial": ("0 others", "7 others")}
    assert differing(workspace, "one-a", "eight") == expected


def test_another_run_at_the_same_time_counts_too(tmp_path):
    workspace = WorkspaceFolder(tmp_path)
    make_run(workspace, "alone", "local", lambda ef, repetition: ef * 3 + repetition)
    make_run(workspace, "disturbed", "local", lambda ef, repetition: 100 + ef * 3 + repetition)
    assert differing(workspace, "alone", "disturbed") == {}
    make_run(workspace, "other", "local", lambda ef, repetition: 100 + ef * 3 + repetition)
    assert differing(workspace, "alone", "disturbed") == {"ran beside a trial": ("0 others", "1 other")}
