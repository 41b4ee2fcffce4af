"""`make fuzz` compares every compiled function with its twin, and its failures can be repeated."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchhouse.load import answers_python

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import fuzz  # noqa: E402

MODULES = sorted(fuzz.FOLDER.glob("_*.abi3.so"))
ROUNDS = 800
is_compiled = pytest.mark.skipif(not MODULES, reason="nothing is compiled in this installation")


@pytest.fixture
def options(tmp_path):
    """Arguments of 80 rounds with the installed modules, in this process."""
    for module in MODULES:
        shutil.copy(module, tmp_path)
    (tmp_path / "round").write_bytes(bytes(8))
    values = {"modules": tmp_path, "seconds": 0, "seed": 1, "first": 0, "rounds": 80, "only": ""}
    return argparse.Namespace(**values, without_sanitizers=True)


@pytest.mark.starts
def test_no_function_differs_from_its_twin_under_the_sanitizers():
    command = [sys.executable, str(SCRIPTS / "fuzz.py"), "--seed", "1", "--rounds", str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode == fuzz.CANNOT_RUN:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert {*re.findall(r"(\w+) (\d+)(?:, |\n)", done.stdout)} >= {
        (name, str(ROUNDS // 8)) for name in [*fuzz.FUNCTIONS, "poller"]
    }


@is_compiled
def test_a_difference_is_found_and_its_command_repeats_it(options, monkeypatch, capsys):
    make_arguments, _ = fuzz.FUNCTIONS["gaps"]
    monkeypatch.setitem(fuzz.FUNCTIONS, "gaps", (make_arguments, lambda stamps: (*answers_python.gaps(stamps)[:2], -1)))
    assert fuzz.run_rounds(options) == fuzz.FAILED
    options.first = int(re.search(r"--seed 1 --first (\d+) --rounds 1", capsys.readouterr().err)[1])
    options.rounds = 1
    assert fuzz.run_rounds(options) == fuzz.FAILED


@is_compiled
def test_a_poller_that_differs_is_found(options, monkeypatch):
    monkeypatch.setattr(fuzz.PythonPoller, "take", lambda self, file: (b"", b"", 0))
    options.only = "poller"
    assert fuzz.run_rounds(options) == fuzz.FAILED
