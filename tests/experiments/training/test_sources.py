"""Logs and records as programs really write them: colours, progress bars, garbage, and patterns that go wrong."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import benchhouse_client
from benchhouse.experiments.training.launch import RankProcess
from benchhouse.experiments.training.patterns import TimedLine, search
from benchhouse.experiments.training.run import TrainingWorkload, train
from benchhouse.schema.experiment import ExperimentFailed

PATTERNS = {"step": r"iter (\d+)", "loss": r"loss ([\d.]+|nan)", "step_s": r"took ([\d.]+)s"}


def prints(code):
    return {"argv": [sys.executable, "-S", "-u", "-c", f"import os, sys\nout = sys.stdout.buffer\n{code}"], "name": "t"}


def test_a_progress_bar_and_colours_are_read(play):
    bar = r"""
for step in range(5):
    out.write(b"\r\x1b[1;32miter\x1b[0m %d: \x1b]8;;x\x07loss 2.5 took 0.25s \xe2\x96\x88" % step)
out.write(b"\n")
"""
    ctx = play(train, prints(bar), {"warmup": 0, "patterns": PATTERNS})
    assert ctx.values["step_time"] == pytest.approx([250.0] * 5) and ctx.values["loss"] == [2.5]


def test_garbage_and_lines_of_megabytes_between_the_steps_do_no_harm(play):
    garbage = r"""
for step in range(5):
    out.write(bytes(range(256)) * 50 + b"\n\xff\xfe\x00 iter x\n" + b"iter 7" * 2_000_000 + b"\n")
    out.write(b'{"step": [1]}\n{"step": 1e999}\n{"step": %s}\n{"st\n' % (b"9" * 5000))
    out.write(b"iter %d: loss nan took 0.25s\n" % step)
"""
    ctx = play(train, prints(garbage), {"warmup": 0, "patterns": PATTERNS | {"step": r"^iter (\d+):"}})
    assert ctx.values["step_time"] == pytest.approx([250.0] * 5)
    assert ctx.warnings["not_finite"].startswith("loss: 5 values") and "loss" not in ctx.values


def test_a_pattern_that_matches_nothing_is_shown_with_a_line(play):
    words = "for step in range(3): print(f'step={step} loss=1.5')"
    with pytest.raises(ExperimentFailed, match=r"no_steps: .*'iter \(.*matches none of 3 lines, such as 'step=2 loss"):
        play(train, prints(words), {"patterns": PATTERNS})
    ctx = play(train, prints(words), {"warmup": 0, "patterns": PATTERNS | {"step": r"step=(\d+)"}})
    assert "loss 'loss ([\\\\d.]+|nan)', step_s" in ctx.warnings["pattern_unmatched"]
    assert "no match in 3 lines with a step, as 'step=0 loss=1.5'" in ctx.warnings["pattern_unmatched"]


def test_a_pattern_that_backtracks_for_ever_is_ended_and_named(play):
    words = f"print('iter 1 {'a' * 60}!')"
    with pytest.raises(
        ExperimentFailed, match=r"pattern_slow: .*loss \('\(\(\?:a\+\)\+\)\$'\) takes too long on one line"
    ):
        play(train, prints(words), {"patterns": {"step": r"iter (\d+)", "loss": r"((?:a+)+)$"}})


def test_what_was_found_before_a_slow_line_is_kept():
    lines = [TimedLine(0, 1.0, "x 1"), TimedLine(3, 2.0, "x 2 5,120.5"), TimedLine(0, 3.0, "x 3 " + "b" * 60 + "!")]
    found = search(lines, {"tokens": r" ([\d,.]+)$", "step": r"x (\d+)", "z": r"((?:b+)+)$"})
    assert found.records[1] == (3, {"step": 2, "tokens": 5120.5, "t": 2.0})
    assert found.slow.startswith("z (") and found.matches == {"step": 2, "tokens": 2, "z": 0}


def test_a_line_without_an_end_takes_no_more_memory_than_is_searched(tmp_path):
    rank = RankProcess(0, tmp_path / "log")
    for _ in range(100):
        rank.take(b"x" * 65536, 1.0)
    rank.take(b"\nlast", 2.0)
    rank.take(b"", 3.0)
    assert [(at_s, len(line)) for at_s, line in rank.lines] == [(2.0, 16384), (3.0, 4)]


def test_steps_in_any_order_have_positive_rates_and_numbers_that_come_again_are_told(play):
    emits = """
sys.path.insert(0, os.environ["CLIENT"])
from benchhouse_client import emit
for step in {order}:
    emit({{"step": step, "t_start": 100.0 + {at}, "t_end": 101.0 + {at}, "tokens": 10, "rank": None}})
"""
    workload = {"warmup": 0, "environment": {"CLIENT": str(Path(benchhouse_client.__file__).parent)}}
    down = play(train, prints(emits.format(order="range(5, 0, -1)", at="5 - step")), workload)
    assert down.values["tokens_per_s"] == pytest.approx([10.0])
    assert down.values["energy_per_token"] == pytest.approx([1 / 50])
    epochs = play(train, prints(emits.format(order="[0, 1, 2, 0, 1, 2]", at="step")), workload)
    assert epochs.warnings["steps_told_twice"].startswith("3 records tell a step")
    assert len(epochs.values["step_time"]) == 3
    forked = play(train, prints("os.fork()" + emits.format(order="range(4)", at="step") + "print('{')"), workload)
    assert forked.warnings["steps_told_twice"].startswith("4 records") and len(forked.values["step_time"]) == 4


def test_numbers_too_large_for_a_float_are_left_out(play):
    big = 'for step in range(3): print(\'{"step": %d, "step_s": 0.5, "tokens": 1%s}\' % (step, \'0\' * 400))'
    ctx = play(train, prints(big), {"warmup": 0})
    assert ctx.values["step_time"] == pytest.approx([500.0] * 3) and "tokens_per_s" not in ctx.values


def test_profiled_steps_are_a_short_range():
    for steps in ["10", "5..4", "0..200", "a..b"]:
        with pytest.raises(ValidationError, match="steps"):
            TrainingWorkload(profile={"steps": steps})
