"""`training.run` with trainers whose truth is planted: they say when their steps began and ended."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import benchhouse_client
from benchhouse.experiments.training.run import TrainingWorkload, train
from benchhouse.schema.experiment import ExperimentFailed

CLIENT = str(Path(benchhouse_client.__file__).parent)
HEAD = f"""
import json, os, signal, sys, time
sys.path.insert(0, {CLIENT!r})
from benchhouse_client import emit
rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
zero = time.monotonic()
"""
STEPS = """
for step in range(8):
    begin = zero + step * 0.1
    emit({"step": step, "t_start": begin, "t_end": begin + 0.1, "tokens": 50, "loss": 2 - step / 10, "data_s": 0.01,
          "comm_s": 0.02 if rank == 1 else 0.06, "cpu_s": 0.09})
"""


def trainer(code):
    return {"argv": [sys.executable, "-S", "-c", HEAD + code], "name": "t"}


def test_planted_steps_are_reported(play):
    ctx = play(train, trainer(STEPS), {"warmup": 2})
    assert ctx.values["step_time"] == pytest.approx([100.0] * 6)
    assert ctx.values["tokens_per_s"] == pytest.approx([500.0])
    assert ctx.values["data_share"] == pytest.approx([0.1])
    assert ctx.values["cpu_share"] == pytest.approx([0.9])
    assert ctx.values["loss"] == pytest.approx([1.3])
    assert (ctx.values["restarts"], ctx.values["lost_steps"]) == ([0], [0])
    assert ctx.facts["records_from"] == "emitted" and ctx.facts["warmup_rule"] == "as asked"
    assert 'step": 7' in (ctx.artifacts / "steps.rank-0.attempt-0.0.jsonl").read_text().replace('step":7', 'step": 7')


def test_ranks_are_joined_and_the_slow_one_has_the_most_work_of_its_own(play):
    shared = "zero = float(os.environ['ZERO'])\n"
    ctx = play(train, trainer(shared + STEPS), {"ranks": 3, "warmup": 0, "environment": {"ZERO": "1000"}})
    assert ctx.values["tokens_per_s"] == pytest.approx([1500.0])
    assert ctx.values["own_step_time"] == pytest.approx([40.0, 80.0, 40.0])
    assert ctx.facts["world"] == 3


def test_json_lines_and_patterns_serve_programs_that_emit_nothing(play):
    lines = "for step in range(4): print(json.dumps({'step': step, 'step_s': 0.5, 'samples': 3}), flush=True)"
    ctx = play(train, trainer(lines), {"warmup": 0})
    assert (
        ctx.values["step_time"] == pytest.approx([500.0] * 4) and ctx.facts["records_from"] == "JSON lines of the log"
    )
    words = "for step in range(4): print(f'iter {step}: loss {3 - step}.5 took 0.25s', flush=True)"
    patterns = {"step": r"iter (\d+)", "loss": r"loss ([\d.]+)", "step_s": r"took ([\d.]+)s"}
    ctx = play(train, trainer(words), {"warmup": 0, "patterns": patterns})
    assert ctx.values["step_time"] == pytest.approx([250.0] * 4) and ctx.values["loss"] == [0.5]
    assert ctx.facts["records_from"] == "patterns on the log"


def test_a_rank_that_is_killed_is_named_with_its_last_line(play):
    dies = """
print(f"hello of {rank}", flush=True)
if rank == 1: os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
    with pytest.raises(ExperimentFailed, match=r"rank_killed: rank 1 .*was ended by signal 9 .* before .*: hello of 1"):
        play(train, trainer(dies), {"ranks": 2})


def test_after_a_restart_what_was_done_twice_is_lost_and_the_training_goes_on(play):
    restarts = """
first = 0 if attempt == 0 else 3
for step in range(first, 6):
    begin = 1000 + attempt * 10 + step
    emit({"step": step, "t_start": begin, "t_end": begin + 1})
    if attempt == 0 and step == 4: sys.exit(7)
"""
    ctx = play(train, trainer(restarts), {"max_restarts": 2, "warmup": 0})
    assert (ctx.values["restarts"], ctx.values["lost_steps"]) == ([1], [2])
    assert len(ctx.values["step_time"]) == 6
    assert ctx.facts["attempts"] == 2


def test_a_training_that_hangs_is_ended_by_its_timeout(play):
    with pytest.raises(ExperimentFailed, match=r"timeout: the ranks were ended by workload\.timeout before the first"):
        play(train, trainer("time.sleep(60)"), {"ranks": 2, "timeout": 0.5})


def test_a_trainer_without_steps_of_all_ranks_fails_with_what_to_do(play):
    for code, says in [
        ("print('only words')", "no record of a step was found.*only words"),
        ("pass", "no record of a step was found.*it printed nothing"),
        (STEPS.replace('{"step"', '{"rank": 0, "step"'), "no step has a record of every rank: only of ranks 0 of 2"),
    ]:
        with pytest.raises(ExperimentFailed, match=f"(?s)no_steps: {says}"):
            play(train, trainer(code), {"ranks": 2})


def test_nan_is_told_and_in_no_figure(play):
    ctx = play(train, trainer("loss = float('nan')\n" + STEPS.replace("2 - step / 10", "loss")), {})
    assert "loss" not in ctx.values and ctx.warnings["not_finite"].startswith("loss: 8 values")


def test_patterns_need_a_step_and_one_group_each():
    with pytest.raises(ValidationError, match="patterns need one for step"):
        TrainingWorkload(patterns={"loss": "(x)"})
    with pytest.raises(ValidationError, match="2 groups; put exactly one"):
        TrainingWorkload(patterns={"step": "(x)(y)"})
    with pytest.raises(ValidationError, match="is not a regular expression"):
        TrainingWorkload(patterns={"step": "("})


def test_a_program_that_is_not_there_is_told(play):
    with pytest.raises(ExperimentFailed, match="command_not_found: no program 'no-such-trainer'"):
        play(train, {"argv": ["no-such-trainer"]}, {})


def test_a_program_finds_the_modules_that_emit_also_where_they_are_not_installed(play):
    code = "from benchhouse_client import emit; import benchhouse_training, importlib.util\n"
    code += "emit({'step': 0, 'step_s': 1.0, 'loss': float(importlib.util.find_spec('benchhouse') is not None)})"
    target = {"argv": [sys.executable, "-S", "-c", code]}
    assert play(train, target, {"warmup": 0}).values["loss"] == [0.0], "and nothing else of ours"


def test_ranks_that_tell_no_steps_tell_other_figures(play):
    code = "print('img/sec', 10 * (rank + 1), flush=True)\nif rank == 0: emit({'accuracy': 0.5})"
    metrics = [{"name": "speed", "unit": "img/s", "pattern": r"img/sec (\d+)", "take": "all"}, {"name": "accuracy"}]
    ctx = play(train, trainer(code), {"ranks": 2, "metrics": metrics})
    assert (sorted(ctx.values["speed"]), ctx.values["accuracy"]) == ([10, 20], [0.5])
    assert "step_time" not in ctx.values
    with pytest.raises(ExperimentFailed, match="no record of a step"):
        play(train, trainer(code), {})
    with pytest.raises(ValidationError, match="loss is measured by the experiment itself"):
        TrainingWorkload(metrics=[{"name": "loss"}])
