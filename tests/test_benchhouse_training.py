"""`Steps` around the batches of a loop, without torch: what becomes a record, and when."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import benchhouse_training
from benchhouse.experiments.emitted_records import collect_emitted


@pytest.fixture
def program(tmp_path):
    def run(code: str, inside: bool = True) -> list[dict[str, object]]:
        folder = {"BENCHHOUSE_EMIT": str(tmp_path)} if inside else {}
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(benchhouse_training.__file__).parent),
            **folder,
        }
        head = "import sys, time\nfrom benchhouse_training import *\nsteps = Steps()\n"
        subprocess.run([sys.executable, "-S", "-c", head + code], env=environment, check=True, timeout=60)
        return [record for process in collect_emitted(tmp_path, 2**20) for record in process.records]

    return run


def test_a_turn_is_a_step_with_its_wait_and_a_checkpoint_lies_between_two(program):
    code = """
def slow():
    for batch in range(3):
        time.sleep(0.02)
        yield batch
for batch in steps(slow(), first=5):
    steps.note(loss=batch / 2)
    if batch == 1:
        with steps.checkpoint(): time.sleep(0.03)
"""
    records = program(code)
    assert [(record["step"], record["loss"]) for record in records] == [(5, 0.0), (6, 0.5), (7, 1.0)]
    assert all(record["data_s"] >= 0.02 and record["memory_bytes"] > 0 for record in records)
    assert records[1]["checkpoint_s"] >= 0.03 and records[2]["t_start"] - records[1]["t_end"] >= 0.03
    assert all(before["t_end"] <= after["t_start"] for before, after in pairwise(records))


def test_batches_are_summed_up_and_a_turn_that_breaks_off_is_no_step(program):
    assert [record["step"] for record in program("for _ in steps(range(5), every=2): pass")] == [0, 1]
    assert [record["step"] for record in program("for i in steps(range(5)):\n if i == 2: break\nsteps.close()")] == [
        0,
        1,
    ]
    ended = "for i in steps(range(5)):\n if i == 2:\n  steps.end()\n  break\nsteps.close()"
    assert [record["step"] for record in program(ended)] == [0, 1, 2]


def test_nothing_is_imported_or_written_outside_of_a_trial(program, tmp_path):
    code = "for i in steps(range(2)): pass\nfor i in profiled(range(3)): pass\nassert 'torch' not in sys.modules"
    assert program(code, inside=False) == [] and not list(tmp_path.iterdir())
