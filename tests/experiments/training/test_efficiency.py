"""MFU, HFU, memory, money and loss of `training.run`, against figures computed by hand."""

import hashlib
import struct
import sys

import pytest
from experiments.training.test_run import trainer
from pydantic import ValidationError

from benchhouse.experiments.training.convergence import SMOOTHED, meets_target
from benchhouse.experiments.training.figures import WholeStep
from benchhouse.experiments.training.flops import ModelFlops
from benchhouse.experiments.training.peak import PUBLISHED, Peak, python_of
from benchhouse.experiments.training.run import train
from benchhouse.experiments.training.steps import TrainingStep

GPT = {"parameters": 1.34e9, "embedding": 65.5e6, "layers": 24, "width": 2048, "tokens": 2048}
STEPS = """
for step in range(8):
    begin = zero + step * 0.1
    emit({"step": step, "t_start": begin, "t_end": begin + 0.1, "tokens": 50, "loss": 2 - step / 10, **MORE})
"""


def planted(**more):
    return trainer(STEPS.replace("**MORE", f"**{more!r}"))


def test_formulas_give_the_published_numbers():
    weights = 6 * (1.34e9 - 65.5e6)
    assert ModelFlops(formula="6N", parameters=1.34e9).a_token == 6 * 1.34e9
    assert ModelFlops(formula="6N+12LHQT", **GPT).a_token == weights + 12 * 24 * 2048 * 2048
    assert ModelFlops(formula="6N+12LHQT", causal=True, **GPT).a_token == weights + 6 * 24 * 2048 * 2048
    # PaLM's appendix B: 540 billion, 118 layers, 48 heads of 256, 2,048 tokens: 6N and 12LHQT.
    palm = ModelFlops(formula="6N+12LHQT", parameters=540.35e9, layers=118, width=48 * 256, tokens=2048)
    assert palm.a_token == pytest.approx(6 * 540.35e9 + 35.6e9, rel=1e-3)


def test_mfu_is_flops_of_all_ranks_against_the_peak_of_all_devices(play):
    workload = {
        "ranks": 2, "warmup": 2, "environment": {"ZERO": "1000"},
        "flops": {"formula": "declared", "per_token": 1e6, "recompute": "full"}, "peak": {"flops": 4e9},
    }  # fmt: skip
    target = planted()
    target["argv"][-1] = target["argv"][-1].replace("for step", "zero = float(os.environ['ZERO'])\nfor step", 1)
    ctx = play(train, target, workload)
    assert ctx.values["mfu"] == pytest.approx([1000 * 1e6 / 8e9])  # two ranks of 500 tokens a second
    assert ctx.values["hfu"] == pytest.approx([1000 * 1e6 / 8e9 * 4 / 3])
    about = ctx.facts["utilisation"]
    assert (about["formula"], about["causal"], about["peak_source"]) == ("declared", False, "declared")


def test_counted_flops_are_used_and_recompute_is_in_hfu_alone(play):
    counted = planted(flops=3e6, hardware_flops=4e6, memory_bytes=7e6)
    ctx = play(train, counted, {"warmup": 0, "peak": {"device": "H200 SXM", "dtype": "bfloat16"}})
    assert ctx.values["mfu"] == pytest.approx([3e7 / 989.4e12]) and ctx.values["hfu"] == pytest.approx([4e7 / 989.4e12])
    assert ctx.facts["utilisation"]["formula"] == "counted" and "H200 SXM" in ctx.facts["utilisation"]["peak_source"]
    assert ctx.values["memory_mb"] == [7.0]
    ctx = play(train, planted(), {"warmup": 0, "peak": {"flops": 1e9}})
    assert "mfu" not in ctx.values and "count_flops" in ctx.warnings["no_mfu"]
    ctx = play(train, planted(flops=2e9), {"warmup": 0, "peak": {"flops": 1e9}})
    assert "above_the_peak" in ctx.warnings


def test_money_and_energy_are_by_token(play):
    ctx = play(train, {**planted(), "price_per_hour": 3.6}, {"warmup": 0})
    assert ctx.values["cost_per_million_tokens"] == pytest.approx([3.6 / 3600 / 500 * 1e6])
    assert ctx.values["energy_per_token"] == pytest.approx([1 / 400])  # a joule for 400 tokens


def test_a_peak_that_can_not_be_measured_is_said_and_the_given_one_is_kept(play):
    peak = {"flops": 1e9, "measure": True, "seconds": 0.1}
    ctx = play(train, {**planted(flops=1e6), "python": sys.executable}, {"warmup": 0, "peak": peak})
    assert "torch" in ctx.warnings["peak_not_measured"] and ctx.values["mfu"] == pytest.approx([0.01])
    ctx = play(train, {**planted(flops=1e6), "python": "/bin/true"}, {"warmup": 0, "peak": {**peak, "use": "measured"}})
    assert "0 of 1 ranks" in ctx.warnings["peak_not_measured"] and "mfu" not in ctx.values


def test_the_python_of_a_program_is_the_one_beside_it(tmp_path):
    for name in ("python", "torchrun"):
        (tmp_path / name).touch(0o755)
    assert python_of(["torchrun"], str(tmp_path)) == python_of(["python"], str(tmp_path)) == str(tmp_path / "python")
    assert python_of(["sh"], "/bin") is None


def test_what_does_not_fit_is_refused():
    for model, given, says in [
        (ModelFlops, {"formula": "6N+12LHQT", "parameters": 1e9}, "needs layers, width, tokens"),
        (ModelFlops, {"formula": "declared"}, "needs per_token"),
        (ModelFlops, {"formula": "6N", "parameters": 10, "embedding": 10}, "part of parameters"),
        (ModelFlops, {"formula": "6N", "parameters": 10, "recompute": -1.0}, "not negative"),
        (Peak, {}, "give flops or device, or measure"),
        (Peak, {"device": "H900"}, "known .*: give flops"),
        (Peak, {"device": "V100 SXM2", "dtype": "bfloat16"}, "float16, float32"),
        (Peak, {"flops": 1.0, "device": "A100"}, "leave one out"),
        (Peak, {"flops": 1.0, "use": "measured"}, "needs measure"),
        (Peak, {"measure": True, "use": "given"}, "needs flops or device"),
    ]:
        with pytest.raises(ValidationError, match=says):
            model(**given)


def test_published_peaks_are_ordered_as_hardware_is():
    for _, rates in PUBLISHED.values():
        assert rates["float32"] < rates.get("tf32", rates["float16"]) <= rates["float16"]


def losses(*values):
    return [
        WholeStep(n, 0, [TrainingStep(0, n, 0, float(n), n + 1.0, {"loss": loss})]) for n, loss in enumerate(values)
    ]


def test_a_target_is_met_by_the_mean_of_several_steps_not_by_one():
    lucky = [3.0] * 5 + [0.0] + [3.0] * 10
    assert meets_target(losses(*lucky), 2.0).step is None and meets_target(losses(*lucky), 2.0).best == 2.7
    falling = [2.0] * SMOOTHED + [1.0] * SMOOTHED
    met = meets_target(losses(*falling), 1.5)
    assert (met.step, met.end_s) == (SMOOTHED + 4, SMOOTHED + 5.0)


def test_target_loss_at_and_digest_are_reported(play):
    longer = trainer(STEPS.replace("range(8)", "range(16)").replace(", **MORE", ""))
    ctx = play(train, longer, {"warmup": 0, "target_loss": 1.3, "loss_at": [4, 99]})
    assert ctx.values["steps_to_target"] == [13] and "time_to_train" not in ctx.values  # mean of 3..12 is 1.25
    assert ctx.values["loss_at"] == pytest.approx([1.6]) and "no step 99" in ctx.warnings["no_loss_at"]
    exact = b"".join(struct.pack("<qqd", step, 0, 2 - step / 10) for step in range(16))
    assert ctx.facts["loss_digest"] == hashlib.sha256(exact).hexdigest()
    ctx = play(train, longer, {"warmup": 0, "target_loss": 0.1})
    assert "time_to_target" not in ctx.values and "best mean of 10 was 0.95" in ctx.warnings["target_not_reached"]
    assert play(train, longer, {"warmup": 0}).values["time_to_train"]


def test_hfu_is_never_below_mfu_where_a_formula_is_off_the_count(play):
    counted = planted(flops=50e6, hardware_flops=60e6)  # of 50 tokens, a million each; the formula says 1.1 million
    flops = {"formula": "declared", "per_token": 1.1e6}
    ctx = play(train, counted, {"warmup": 0, "peak": {"flops": 1e10}, "flops": flops})
    assert ctx.values["mfu"] == pytest.approx([0.055]) and ctx.values["hfu"] == pytest.approx([0.066])
