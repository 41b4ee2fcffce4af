"""`training.collectives`: planted rounds give figures that are computed by hand, and real ranks do every operation."""

import json
import os
import stat
import sys

import pytest
from pydantic import ValidationError
from services.trainer import trainer_python

from benchhouse.experiments.training.collectives import PROGRAM, CollectivesWorkload, collectives
from benchhouse.experiments.training.launch import run_here
from benchhouse.experiments.training.operation_rounds import bus_factor
from benchhouse.schema.experiment import ExperimentFailed

SMALL = {"operation": "all_reduce", "bytes": 4096, "ranks": 2}


@pytest.fixture
def script(tmp_path):
    """A file that runs as a program."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


@pytest.fixture
def fake_python(script):
    """A `python` that does not run the program, but prints what its rank of a planted run would."""

    def write(code):
        head = f"#!{sys.executable}\nimport json, os, sys\nrank = int(os.environ['RANK'])\n"
        say = "def say(what, **items): print(json.dumps({'collective': what, 'rank': rank, **items}), flush=True)\n"
        return script("fake-python", f"{head}{say}{code}")

    return write


ABOUT = "say('about', world={world}, torch='9.9', clock={clock}, device='cpu', nccl=None)\n"
ROUNDS = """
say('round', begin_s=100.0 + 0.002 * rank, end_s=100.2)
say('round', begin_s=200.0, end_s=200.4)
say('result', bytes=4_000_000, wrong={wrong}, waited_s=0.04 * (rank == 1))
"""


def planted(world=4, clock="'here'", wrong="0"):
    return ABOUT.format(world=world, clock=clock) + ROUNDS.format(wrong=wrong)


def test_the_factor_of_bus_bandwidth_is_that_of_nccl_tests():
    for operation, factor in [
        ("all_reduce", 1.5),
        ("all_gather", 0.75),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("broadcast", 1.0),
        ("send_recv", 1.0),
    ]:
        assert bus_factor(operation, 4) == pytest.approx(factor)


def test_planted_rounds_give_the_figures_that_are_computed_by_hand(play, fake_python):
    """Two rounds of 20 operations take 0.2 and 0.4 s: 10 and 20 ms each, so 4 MB move in 15 ms."""
    ctx = play(collectives, {"python": fake_python(planted())}, {**SMALL, "bytes": 4_000_000, "ranks": 4})
    assert ctx.values["latency"] == pytest.approx([10_000, 20_000])
    assert ctx.values["algorithm_bandwidth"] == pytest.approx([4e6 / 1e9 / 0.015])
    assert ctx.values["bus_bandwidth"] == pytest.approx([4e6 / 1e9 / 0.015 * 1.5])
    assert ctx.values["start_skew"] == pytest.approx([3_000]), "0.006 s in one round, nothing in the other"
    assert ctx.errors["latency"]["mean"] == pytest.approx(0.006 / 20 / 2 * 1e6)
    assert ctx.values["core_wait"] == pytest.approx([0.04 / 40 * 1e6])
    assert ctx.values["wrong"] == [0] and "wrong_result" not in ctx.invalidities and not ctx.beyond["latency"]
    assert ctx.facts["last_to_begin"]["rounds"] == 1 and ctx.facts["torch"] == "9.9"


def test_ranks_that_begin_too_far_apart_make_figures_invalid(play, fake_python):
    late = planted().replace("0.002 * rank", "0.05 * (rank == 2)")
    ctx = play(collectives, {"python": fake_python(late)}, {**SMALL, "bytes": 4_000_000, "ranks": 4})
    assert ctx.facts["last_to_begin"] == {"rank": 2, "rounds": 1}
    assert "mean" in ctx.beyond["latency"] and ctx.beyond["bus_bandwidth"] == {"value"}
    assert "25,000 us apart, which can have changed its time by 8.3%" in ctx.warnings["figures_invalid"]


def test_ranks_that_wait_for_cores_make_figures_invalid(play, fake_python):
    busy = planted().replace("0.04 *", "0.4 *")
    ctx = play(collectives, {"python": fake_python(busy)}, {**SMALL, "bytes": 4_000_000, "ranks": 4})
    assert "waited 10,000 us for a core in an operation of 15,000 us" in ctx.warnings["figures_invalid"]
    assert "mean" in ctx.beyond["latency"] and ctx.beyond["bus_bandwidth"] == {"value"}


def test_several_clocks_tell_no_bound(play, fake_python):
    ctx = play(
        collectives,
        {"python": fake_python(planted(clock="f'{rank // 2}'"))},
        {**SMALL, "bytes": 4_000_000, "ranks": 4},
    )
    assert not any(ctx.errors.values())
    assert ctx.values["start_skew"] == pytest.approx([1_000]), "between ranks of one node alone"


def test_wrong_elements_make_a_trial_invalid(play, fake_python):
    ctx = play(
        collectives, {"python": fake_python(planted(wrong="7 * rank"))}, {**SMALL, "bytes": 4_000_000, "ranks": 4}
    )
    assert ctx.values["wrong"] == [42]
    assert ctx.invalidities["wrong_result"] == "all_reduce of 4 MB: 42 elements came out wrong"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "say('unsupported', error='gloo: no such thing'); sys.exit(1)",
            "unsupported_operation: gloo of .*no such thing",
        ),
        ("print('no torch: No module'); sys.exit(1)", "no_torch: .*name a Python that has it as target.python"),
        ("print('boom'); sys.exit(3 if rank else 0)", "rank_failed: rank 1 ended with exit code 3: boom"),
        ("print('hello')", "no_result: 0 of 2 ranks told a result; rank 0: hello"),
        (planted(world=1), r"no_result: the ranks made worlds of \[1\], not one of 2"),
        (planted(world=2).replace("4_000_000", "0"), "no_result: the size is too small"),
    ],
)
def test_what_went_wrong_is_told(play, fake_python, code, says):
    with pytest.raises(ExperimentFailed, match=says):
        play(collectives, {"python": fake_python(code)}, SMALL)


def test_bad_input_is_refused():
    with pytest.raises(ValidationError, match=r"one rank sends nothing to anybody.*at least 2 ranks"):
        CollectivesWorkload(**SMALL | {"ranks": 1})
    with pytest.raises(ValidationError, match="mpirun: not of engine: torch"):
        collectives.target_model(mpirun=["mpirun"])
    with pytest.raises(ValidationError, match="python: not of engine: nccl-tests"):
        collectives.target_model(engine="nccl-tests", python="/opt/python")


def test_a_python_without_torch_is_named(play):
    with pytest.raises(ExperimentFailed, match="no_torch"):
        play(collectives, {"python": sys.executable}, SMALL)


EVERY = f"""
import datetime, json, sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import torch, torch.distributed as dist
from collectives import CollectiveOperation
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"):
    for size in (100, 4096, 300_000):
        for dtype in (torch.float32, torch.bfloat16):
            operation = CollectiveOperation(name, size, dtype, torch.device("cpu"))
            before = operation.check()
            operation.reset(); operation.run()
            after = operation.check()
            planted = operation.taken[-1] + 1
            operation.taken[-1] = planted
            sees = int((operation.taken != operation._expected()).sum())
            print(json.dumps([name, size, operation.bytes, before, after, sees]), flush=True)
dist.destroy_process_group()
"""


def test_real_ranks_do_every_operation_and_a_wrong_element_is_seen(tmp_path):
    ranks = run_here([trainer_python(), "-c", EVERY], 2, os.environ, tmp_path, 200)
    assert not any(rank.exit_code for rank in ranks), ranks[0].last_lines() + ranks[1].last_lines()
    for rank in ranks:
        rows = [json.loads(line) for _, line in rank.lines if line.startswith("[")]
        assert len(rows) == 36 and all(row[3:] == [0, 0, 1] for row in rows), rows
        sizes = {(row[0], row[1]): row[2] for row in rows}
        assert sizes["all_reduce", 100] == 100 and sizes["all_gather", 100] == 96, "shares are multiples of 16 bytes"


def test_a_rank_that_is_late_for_each_operation_shows_in_the_latency(play, script):
    late = script("late-python", f'#!/bin/sh\nexec {trainer_python()} "$@" --late 1:0.02:each\n')
    ctx = play(collectives, {"python": late}, {**SMALL, "iterations": 5, "rounds": 3})
    assert len(ctx.values["latency"]) == 3 and min(ctx.values["latency"]) >= 20_000 and ctx.values["wrong"] == [0]
    mean_s = sum(ctx.values["latency"]) / 3 / 1e6
    assert ctx.values["bus_bandwidth"] == pytest.approx([4096 / 1e9 / mean_s])
    assert ctx.facts["torch"].startswith("2.") and ctx.facts["operations"] == 15


def test_a_rank_that_is_late_at_the_start_shows_in_the_skew(play, script):
    late = script("late-python", f'#!/bin/sh\nexec {trainer_python()} "$@" --late 1:0.5:start\n')
    ctx = play(collectives, {"python": late}, {**SMALL, "operation": "send_recv", "rounds": 2})
    assert ctx.values["start_skew"][0] >= 400_000 and ctx.facts["last_to_begin"] == {"rank": 1, "rounds": 2}
    assert "mean" in ctx.beyond["latency"], "half a second of waiting is not what 20 operations took"
