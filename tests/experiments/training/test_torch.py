"""`training.run` with a real trainer: torch, gloo and ranks that wait for each other."""

import json
from pathlib import Path

import pytest
from services.trainer import lab, trainer_python

from benchhouse.experiments.training.run import train
from benchhouse.schema.experiment import ExperimentFailed

EXAMPLE = Path(__file__).parents[3] / "examples" / "training" / "gpt.py"


def test_the_slow_rank_is_the_one_that_waits_least(play):
    ctx = play(train, lab("--steps", 12, "--step-s", 0.02, "--fault", "slow:1:0:0.1"), {"ranks": 2, "warmup": 2})
    assert ctx.values["own_step_time"][1] > 100 > ctx.values["own_step_time"][0]
    assert min(ctx.values["step_time"]) >= 100 and ctx.facts["records_from"] == "emitted"


def test_one_seed_gives_one_loss(play):
    first, again, other = (play(train, lab("--steps", 4, "--seed", seed), {"ranks": 2}) for seed in (0, 0, 1))
    assert first.values["loss"] == again.values["loss"] != other.values["loss"]


def test_counted_flops_are_those_of_the_formula_and_the_peak_is_measured_beside(play):
    """The example trainer, whose products have 6 x weights x tokens FLOPs and attention 12LHQT, exactly."""
    layers, width, tokens, words, batch = 2, 128, 128, 512, 2
    options = {"layers": layers, "width": width, "tokens": tokens, "vocabulary": words, "batch": batch, "steps": 4}
    given = [word for name, number in options.items() for word in (f"--{name}", str(number))]
    target = {"argv": [trainer_python(), str(EXAMPLE), *given, "--count", "--recompute"]}
    peak = {"measure": True, "seconds": 0.5}
    ctx = play(train, target, {"warmup": 1, "peak": peak, "flops": {"formula": "counted"}})
    weights, per_step = layers * 12 * width**2 + words * width, batch * tokens
    exact = (6 * weights + 12 * layers * width * tokens) * per_step
    with (ctx.artifacts / "steps.rank-0.attempt-0.0.jsonl").open() as file:
        records = [json.loads(line) for line in file][1:]
    assert {record["flops"] for record in records} == {exact}
    # A block's last product is not needed again, and torch does not compute it again.
    again = (2 * layers * (12 - 4) * width**2 + 4 * layers * width * tokens) * per_step
    assert {record["hardware_flops"] for record in records} == {exact + again}
    about = ctx.facts["utilisation"]
    took_s = records[-1]["t_end"] - records[1]["t_start"]
    assert ctx.values["mfu"] == pytest.approx([3 * exact / took_s / about["peak_measured"]], rel=1e-3)
    assert ctx.values["hfu"][0] / ctx.values["mfu"][0] == pytest.approx((exact + again) / exact)
    assert about["peak_source"] == "measured" and about["peak_measured_by"][0]["device"] == "CPU with 1 threads"


def test_after_a_kill_both_launchers_go_on_to_the_same_loss(play, tmp_path):
    """With a port of its own in each attempt, an ordinary `init_process_group` meets again; torchrun's store stays."""
    losses = []
    for launcher, rank, more in (("processes", 0, ["--ordinary"]), ("torchrun", 1, [])):  # rank 0 has the store
        folder = tmp_path / launcher
        folder.mkdir()
        given = lab("--steps", 6, "--folder", folder, "--save-every", 2, "--fault", f"kill:{rank}:3", *more)
        ctx = play(train, given, {"ranks": 2, "launcher": launcher, "max_restarts": 1, "warmup": 0})
        assert ctx.values["restarts"] == [1] and ctx.facts["measured_steps"] == 6
        assert [place["rank"] for place in ctx.facts["ranks"]] == [0, 1]
        assert (ctx.artifacts / "rank-1.attempt-1.log").is_file()
        losses.append(ctx.facts["loss_digest"])
    assert losses[0] == losses[1]


def test_a_checkpoint_that_was_cut_short_is_told_where_nothing_can_begin_again_from_it(play, tmp_path):
    options = ("--steps", 8, "--folder", tmp_path, "--save-every", 2, "--fault", "truncate:0:5")
    says = r"rank_failed: rank 0 .* before the first step: .*PytorchStreamReader.*\(after 1 restarts\); is what it"
    with pytest.raises(ExperimentFailed, match=says):
        play(train, lab(*options), {"max_restarts": 1})


def test_under_torchrun_the_rank_that_hangs_is_named_not_one_that_waits_and_the_training_goes_on(play, tmp_path):
    options = ("--steps", 12, "--step-s", 0.02, "--folder", tmp_path, "--save-every", 2, "--fault", "hang:1:5")
    # Longer than ranks need to end, on a busy machine too.
    given = {"ranks": 2, "launcher": "torchrun", "hang_after": 12, "max_restarts": 1, "warmup": 0}
    ctx = play(train, lab(*options), given)
    (told,) = ctx.facts["interrupts"]
    assert (told["kind"], told["ranks"], told["certain"]) == ("hung", [1], True)
    assert "strike (lab_trainer.py:" in told["message"]  # the other one waits for it, or already complains of its end
    assert len(ctx.values["step_time"]) == 12 and ctx.values["lost_steps"] == [1]
    parts = ctx.facts["wall_parts_s"]
    assert sum(parts.values()) == pytest.approx(ctx.facts["wall_s"])
    assert 12 <= parts["detection"] == pytest.approx(ctx.values["detection_time"][0])
