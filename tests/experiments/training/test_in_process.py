"""A training that is a function, in the trial's own process."""

import os
import sys

import pytest
from pydantic import ValidationError

from benchhouse.experiments.training.run import Trainer, train
from benchhouse.schema.experiment import ExperimentFailed

MODULE = """
import os
from benchhouse_client import emit

def steps():
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "1")
    for step in range(4):
        emit({"step": step, "step_s": 0.5, "tokens": 10, "loss": float(os.getpid())})

def fails():
    steps()
    raise RuntimeError("no more data")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_training.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "my_training"
    sys.modules.pop("my_training", None)


def test_a_function_is_called_in_this_process_and_its_records_are_of_this_trial(play, module):
    before = dict(os.environ)
    for _ in range(2):
        ctx = play(train, {"function": f"{module}:steps"}, {"warmup": 0})
        assert ctx.values["step_time"] == pytest.approx([500.0] * 4) and ctx.values["loss"] == [os.getpid()]
        assert ctx.facts["records_from"] == "emitted"
    assert dict(os.environ) == before


def test_what_it_raises_is_the_failure(play, module):
    with pytest.raises(ExperimentFailed, match=r"rank 0 .*RuntimeError: no more data") as failed:
        play(train, {"function": f"{module}:fails"}, {})
    assert failed.value.code == "rank_failed"
    with pytest.raises(ExperimentFailed, match=r"write package\.module:function"):
        play(train, {"function": f"{module}:nowhere"}, {})


def test_what_only_a_process_can_have_is_refused(play, module):
    for workload in [{"ranks": 2}, {"launcher": "torchrun"}, {"timeout": "5s"}]:
        with pytest.raises(ExperimentFailed, match="not_inside"):
            play(train, {"function": f"{module}:steps"}, workload)


def test_a_trainer_is_one_program_or_one_function():
    for target in [{}, {"argv": ["python"], "function": "a:b"}, {"function": "no function"}]:
        with pytest.raises(ValidationError):
            Trainer(**target)
