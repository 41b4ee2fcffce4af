"""Power cuts at some syncs of a run; the benchmark has one at every sync."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from disk_recorder import why_not  # noqa: E402


@pytest.mark.slow("it completes a run of 12 trials once for each state that a power cut leaves")
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_no_trial_that_was_reported_is_lost_by_a_power_cut():
    command = [sys.executable, BENCHMARKS / "power_cut.py", "--cuts", "4", "--json"]
    figures = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert not any(figures["problems"].values()), figures["problems"]
    assert figures["states"] == 8 and figures["syncs"] > 12, "each trial syncs more than once"
