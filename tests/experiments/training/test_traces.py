"""Traces whose truth is planted, of a CPU and of a GPU, and steps that the profiler was in."""

import gzip
import json
import sys

import pytest

from benchhouse.experiments.emitted_records import Emitted
from benchhouse.experiments.training.figures import WholeStep
from benchhouse.experiments.training.profiles import longest_untouched, profiled_times
from benchhouse.experiments.training.run import train
from benchhouse.experiments.training.steps import TrainingStep
from benchhouse.experiments.training.traces import read_trace, steps_in, union, without


def event(name, begin_ms, end_ms, cat="cpu_op", tid=1, **args):
    return {
        "ph": "X", "name": name, "cat": cat, "tid": tid, "ts": begin_ms * 1e3, "dur": (end_ms - begin_ms) * 1e3,
        "args": args,
    }  # fmt: skip


def trace(*events):
    clocks = {"utc": 1000.0, "mono": 50.0}
    return {"traceEvents": [{"ph": "M"}, *events], "baseTimeNanoseconds": 1000 * 10**9, "benchhouse": clocks}


MARK = event("benchhouse.step 4", 0, 100, "user_annotation")
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
ON_CPU = trace(
    MARK,
    event("aten::mm", 10, 30),
    event(BACKWARD, 30, 60),
    event("aten::mm", 32, 50),
    event("gloo:all_reduce", 55, 75, "user_annotation", tid=2),
    event("Optimizer.step#AdamW.step", 80, 95, "user_annotation"),
    event("aten::add_", 81, 90),
)
ON_GPU = trace(
    MARK,
    event("aten::mm", 1, 3), event("cudaLaunchKernel", 2, 2.1, "cuda_runtime", correlation=1),
    event(BACKWARD, 3, 6, tid=9), event("cuLaunchKernel", 5, 5.1, "cuda_driver", tid=9, correlation=2),
    event("Optimizer.step#AdamW.step", 7, 9, "user_annotation"),
    event("cudaLaunchKernel", 8, 8.1, "cuda_runtime", correlation=3),
    event("gemm", 10, 30, "kernel", tid=7, correlation=1),
    event("gemm", 30, 60, "kernel", tid=7, correlation=2),
    event("ncclDevKernel_AllReduce_Sum", 55, 75, "kernel", tid=8, correlation=5),
    event("nccl:all_reduce", 4, 4.5, "user_annotation", tid=9),
    event("adam", 80, 95, "kernel", tid=7, correlation=3),
    event("benchhouse.step 4", 10, 95, "gpu_user_annotation", tid=7),
    event("Optimizer.step#AdamW.step", 80, 95, "gpu_user_annotation", tid=7),
    event("nccl:all_reduce", 55, 75, "gpu_user_annotation", tid=8),
)  # fmt: skip


@pytest.mark.parametrize("planted", [ON_CPU, ON_GPU], ids=["cpu", "gpu"])
def test_parts_of_a_step_are_found_and_only_exposed_communication_counts(planted):
    (step,) = steps_in(planted)
    assert (step["step"], step["t_start"], step["t_end"]) == (4, pytest.approx(50.0), pytest.approx(50.1))
    assert step["forward_s"] == pytest.approx(0.020)
    assert step["backward_s"] == pytest.approx(0.030)
    assert step["optimizer_s"] == pytest.approx(0.015)
    assert step["comm_s"] == pytest.approx(0.015)


def test_spans_are_joined_and_cut():
    assert union([(3, 4), (0, 1), (0.5, 2), (2, 2.5)]) == [(0, 2.5), (3, 4)]
    assert without([(0, 10), (20, 30)], [(25, 40), (2, 3), (-5, 1), (9, 21)]) == [(1, 2), (3, 9), (21, 25)]
    assert without([(0, 1)], [(0, 1)]) == []


def test_what_is_no_trace_of_ours_is_passed_over(tmp_path):
    for content in [b"", b"not packed", *(gzip.compress(text, mtime=0) for text in (b"{", b"[]", b"{}"))]:
        path = tmp_path / "rank-0.attempt-0.trace.json.gz"
        path.write_bytes(content)
        assert read_trace(path) is None
        path.write_bytes(gzip.compress(json.dumps(ON_CPU).encode())[:-20])
        assert read_trace(path) is None


def test_the_longest_stretch_without_a_profiler_is_measured():
    steps = [WholeStep(n, 0, [TrainingStep(0, n, 0, float(n), n + 0.9, {})]) for n in range(10)]
    told = Emitted({}, [{"profile": "2..3", "t_start": 2.0, "t_end": 4.2}, {"profile": 1}, {"step": 1}])
    times = profiled_times([told])
    assert times == [(2.0, 4.2)]  # the trace was still being written in step 4
    assert [step.number for step in longest_untouched(steps, times)] == [5, 6, 7, 8, 9]
    assert longest_untouched(steps, []) == steps and longest_untouched([], times) == []
    assert longest_untouched(steps, [(0.0, 20.0)]) == []


def test_the_profiler_is_the_last_source_and_says_so(play):
    code = f"""
import gzip, json, os
trace = {ON_CPU!r}
path = os.path.join(os.environ["BENCHHOUSE_PROFILES"], "rank-0.attempt-0.trace.json.gz")
assert os.environ["BENCHHOUSE_PROFILE"] == "4..4"
gzip.open(path, "wt").write(json.dumps(trace))
"""
    target = {"argv": [sys.executable, "-S", "-c", code], "name": "t"}
    ctx = play(train, target, {"profile": {"steps": "4..4"}, "warmup": 0})
    assert ctx.facts["records_from"] == "torch profiler" and "slower" in ctx.warnings["profiled"]
    assert ctx.values["step_time"] == pytest.approx([100.0]) and ctx.values["comm_share"] == pytest.approx([0.15])
    assert ctx.facts["profile"]["backward_ms"] == pytest.approx(30.0)
    assert (ctx.artifacts / "profiles" / "rank-0.attempt-0.trace.json.gz").is_file()


def test_steps_that_nobody_profiled_are_told(play):
    code = 'for step in range(3): print(\'{"step": %d, "step_s": 0.5}\' % step)'
    ctx = play(train, {"argv": [sys.executable, "-S", "-c", code]}, {"profile": {"steps": "1..2"}, "warmup": 0})
    assert "no rank wrote a trace of steps 1..2" in ctx.warnings["not_profiled"]
