"""Faults at system calls, a few of them; the benchmark has more."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from strace_calls import why_not  # noqa: E402


@pytest.mark.slow("it runs commands under strace, once for each system call that fails")
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_command_that_is_killed_or_refused_in_a_system_call_loses_doubles_and_leaves_nothing():
    options = ["--command", "collect", "--command", "claim export", "--cases", "6", "--workers", "1", "--json"]
    done = subprocess.run([sys.executable, BENCHMARKS / "syscall_faults.py", *options], capture_output=True, text=True)
    figures = json.loads(done.stdout)
    assert not any(figures["problems"].values()), done.stderr
    assert figures["hits"] >= 4, "the calls are counted in a run that is not disturbed, and few may have moved since"
