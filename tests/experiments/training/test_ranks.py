"""Ranks side by side: who is slow, where, and why."""

import pytest

from benchhouse.experiments.training.figures import progress_of
from benchhouse.experiments.training.ranks import rank_times, report_ranks
from benchhouse.experiments.training.run import train
from benchhouse.experiments.training.steps import TrainingStep
from benchhouse.schema.ranks import RankTimes

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}


def whole(count=10, slow=2, **amounts):
    """Four ranks whose steps all take 100 ms; one of them waits 10 ms for the others, they 60 for it."""
    steps = [
        TrainingStep(
            rank, number, 0, number * 0.1, number * 0.1 + 0.1, {"comm_s": 0.01 if rank == slow else 0.06} | amounts
        )
        for number in range(count)
        for rank in range(4)
    ]
    return progress_of(steps, 4).useful


def test_numbers_of_each_rank_and_node_tell_the_slow_one(recording):
    ctx = recording(train)
    report_ranks(whole(12, data_s=0.004, cpu_s=0.03), NODES, ctx)
    told = ctx.windows
    assert told["own_step_time", "rank:2"] == pytest.approx([90]) and told["own_step_time", "rank:0"] == pytest.approx(
        [40]
    )
    assert told["own_step_time", "node:n2"] == pytest.approx([90]) and told[
        "own_step_time", "node:n1"
    ] == pytest.approx([40])
    assert told["rank_data_time", "rank:3"] == pytest.approx([4]) and told["rank_cpu_time", "rank:3"] == pytest.approx(
        [30]
    )
    table = RankTimes.model_validate_json((ctx.artifacts / "ranks.json").read_bytes())
    assert table.straggler == ctx.warnings["straggler"] and table.straggler.startswith("rank 2 on n2 is slow in steps")
    assert [row.node for row in table.ranks] == ["n1", "n1", "n2", "n2"]


def test_a_table_has_at_most_120_columns_of_as_many_steps():
    table = rank_times(whole(1000), {})
    assert len(table.first_steps) == 112 and table.first_steps[:3] == [0, 9, 18]
    assert table.quantity == "own_step_time" and set(table.ranks[2].times_ms) == {90.0}


def test_ranks_that_tell_no_waits_have_whole_steps_in_the_table_and_no_own_time(recording):
    ctx = recording(train)
    steps = [TrainingStep(rank, number, 0, number, number + 1.0, {}) for number in range(3) for rank in range(2)]
    report_ranks(progress_of(steps, 2).useful, {}, ctx)
    assert ctx.windows == {}
    table = RankTimes.model_validate_json((ctx.artifacts / "ranks.json").read_bytes())
    assert table.quantity == "step_time" and table.ranks[0].times_ms == [1000.0] * 3
