"""Real trainers of transformers, Lightning and accelerate tell their steps by `benchhouse_training`."""

import gzip
import json
from pathlib import Path

import pytest
from services.trainer import HERE, trainer_python

from benchhouse.experiments.training.run import train

EXAMPLES = Path(__file__).parents[3] / "examples" / "training"
pytestmark = pytest.mark.slow("to import transformers or Lightning takes up to ten seconds of CPU time")


def program(path, *options):
    return {"argv": [trainer_python(), str(path), *map(str, options)], "name": "t"}


def records(ctx, rank=0):
    (path,) = ctx.artifacts.glob(f"steps.rank-{rank}.*.jsonl")
    told = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in told if "step" in record]


def test_the_trainer_of_transformers_and_its_profile(play):
    options = ("--steps", 8, "--batch", 3, "--tokens", 16, "--accumulate", 2, "--save-every", 6)
    ctx = play(train, program(EXAMPLES / "hf_trainer.py", *options), {"warmup": 1, "profile": {"steps": "2..3"}})
    steps = records(ctx)
    assert [step["step"] for step in steps] == list(range(8))
    assert {(step["samples"], step["tokens"]) for step in steps} == {(6, 96)}
    assert all(step["loss"] > 0 and step["memory_bytes"] > 1e7 and step["data_s"] >= 0 for step in steps)
    assert [step["step"] for step in steps if "checkpoint_s" in step] == [5, 7]
    # Steps 4 to 7: none of those that the profiler was in, and one stretch.
    assert ctx.facts["measured_steps"] == 4 and len(ctx.values["checkpoint_time"]) == 2
    profile = ctx.facts["profile"]
    assert (profile["steps"], profile["traces"]) == ("2..3", 1) and profile["overhead_share"] > -0.9
    assert profile["forward_ms"] > 0 and profile["backward_ms"] > 0 and profile["optimizer_ms"] > 0
    with gzip.open(ctx.artifacts / "profiles" / "rank-0.attempt-0.trace.json.gz") as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.parametrize(("library", "ranks"), [("lightning", 1), ("accelerate", 2)])
def test_steps_of_two_batches_with_a_planted_wait_for_data(play, tmp_path, library, ranks):
    target = program(HERE / "library_trainer.py", library, tmp_path / "saved")
    ctx = play(train, target, {"ranks": ranks, "warmup": 0})
    for rank in range(ranks):
        steps = records(ctx, rank)
        assert [step["step"] for step in steps] == list(range(6))
        assert {step["samples"] for step in steps} == {8}
        assert [step["step"] for step in steps if "checkpoint_s" in step] == [3]
        assert steps[0]["loss"] > steps[-1]["loss"] > 0
        # 8 samples of 10 ms; of the step after a checkpoint Lightning hides one batch of two.
        assert all(step["data_s"] >= 0.04 if step["step"] == 4 else step["data_s"] >= 0.08 for step in steps[:-1])
    assert ctx.values["data_share"][0] > 0.3


SCRIPT = """
import torch, time
line = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
for _ in range(6):
    line(torch.ones(8, 4)).square().mean().backward()
    time.sleep(0.05)
    optimizer.step()
"""


def test_a_script_as_it_is_is_told_by_its_optimizer(play, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    target = program("-m", "benchhouse_training", "tokens=64", tmp_path / "script.py")
    variables = {"PYTHONPATH": str(EXAMPLES.parents[1] / "src")}
    ctx = play(train, target, {"environment": variables, "profile": {"steps": "1..2"}})
    assert ctx.facts["measured_steps"] == 3 and min(ctx.values["step_time"]) >= 50
    assert 0 < ctx.values["tokens_per_s"][0] <= 64 / 0.05
    assert ctx.facts["profile"]["backward_ms"] > 0
