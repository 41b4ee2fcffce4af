"""`training.run` with a real trainer: torch, gloo and ranks that wait for each other."""

import json
from pathlib import Path

import pytest
from services.trainer import lab, trainer_python

from benchhouse.experiments.training.run import train

EXAMPLE = Path(__file__).parents[3] / "examples" / "training" / "gpt.py"


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


@pytest.mark.slow("a real torchrun notices a hang after 12 s, longer than ranks need to end on a busy machine")
def test_after_a_kill_and_after_a_hang_a_training_goes_on_to_the_same_loss(play, tmp_path):
    """With a port of its own in each attempt, an ordinary `init_process_group` meets again; torchrun's store stays.

    Rank 0, which has the store, is killed among ranks that the experiment starts, and rank 1 is slow there. Rank 1
    hangs under torchrun.
    """

    def options(name, *more):
        (tmp_path / name).mkdir()
        return lab("--steps", 12, "--step-s", 0.02, "--folder", tmp_path / name, "--save-every", 2, *more)

    given = {"ranks": 2, "max_restarts": 1, "warmup": 0}
    killed = play(train, options("killed", "--fault", "kill:0:5", "--slow", "1:0.1", "--ordinary"), given)
    assert killed.values["own_step_time"][1] > 100 > killed.values["own_step_time"][0], "the slow rank waits least"
    assert min(killed.values["step_time"]) >= 100 and killed.facts["records_from"] == "emitted"

    hung = play(train, options("hung", "--fault", "hang:1:5"), given | {"launcher": "torchrun", "hang_after": 12})
    (interrupt,) = hung.facts["interrupts"]
    assert (interrupt["kind"], interrupt["ranks"], interrupt["certain"]) == ("hung", [1], True)
    assert "strike (lab_trainer.py:" in interrupt["message"]  # the other waits for it, or already reports its end
    assert hung.values["lost_steps"] == [1]
    parts = hung.facts["wall_parts_s"]
    assert sum(parts.values()) == pytest.approx(hung.facts["wall_s"])
    assert 12 <= parts["detection"] == pytest.approx(hung.values["detection_time"][0])

    for ctx in (killed, hung):
        assert ctx.values["restarts"] == [1] and ctx.facts["measured_steps"] == 12
        assert [place["rank"] for place in ctx.facts["ranks"]] == [0, 1]
        assert (ctx.artifacts / "rank-1.attempt-1.log").is_file()
    assert killed.facts["loss_digest"] == hung.facts["loss_digest"]
