"""`training.run` with a real trainer: torch, gloo and ranks that wait for each other."""

from services.trainer import lab

from benchhouse.experiments.training.run import train


def test_the_slow_rank_is_the_one_that_waits_least(play):
    ctx = play(train, lab("--steps", 12, "--step-s", 0.02, "--fault", "slow:1:0:0.1"), {"ranks": 2, "warmup": 2})
    assert ctx.values["own_step_time"][1] > 100 > ctx.values["own_step_time"][0]
    assert min(ctx.values["step_time"]) >= 100 and ctx.facts["records_from"] == "emitted"


def test_one_seed_gives_one_loss(play):
    first, again, other = (play(train, lab("--steps", 4, "--seed", seed), {"ranks": 2}) for seed in (0, 0, 1))
    assert first.values["loss"] == again.values["loss"] != other.values["loss"]
