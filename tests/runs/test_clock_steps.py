"""The clock of the machine is set forward and back while trials run: an LD_PRELOAD library shifts the time of day."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "services" / "clock_step.c"
STEPPER = """
import os, time
from pathlib import Path

def stepper(n: int):
    steps = {1: "7200", 2: "-10800"}
    time.sleep(0.1)
    if n in steps:
        Path(os.environ["CLOCK_STEP"]).write_text(steps[n])
    time.sleep(0.1)
    return {"x": n}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
def test_a_clock_that_is_set_changes_neither_durations_nor_the_order_and_the_trial_says_so(lab, tmp_path):
    library = tmp_path / "clock_step.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    lab.install("stepper", "1.0", STEPPER, "[benchhouse.experiments]\nstepper = stepper:stepper\n")
    step = tmp_path / "step"
    step.write_text("0")
    lab.variables |= {"CLOCK_STEP": str(step), "LD_PRELOAD": str(library)}
    scenario = lab.scenario("stepper", workload={"n": [0, 1, 2, 3]}, order="sequential")  # one trial after the other
    began = time.monotonic()
    with lab.start("run", scenario, "--json") as process:
        out, err = process.communicate(timeout=120)
    took = time.monotonic() - began
    assert process.returncode == 0, err
    trials = lab.by("n")
    for n, trial in trials.items():
        assert 0.2 <= trial.meta["duration_s"] < took
        warned = [item["code"] for item in trial.meta["warnings"]]
        assert ("clock_set" in warned) == (n in (1, 2))
    with lab.start("run", scenario, "--new", "--json") as process:
        again, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    newest = json.loads(again)["run_id"]
    assert newest > json.loads(out)["run_id"], "the clock is an hour behind the start of the first run"
    assert newest in lab.bench("report", "@last").stdout
    lab.bench("verify", "--all")
