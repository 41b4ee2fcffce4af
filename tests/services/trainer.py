"""The virtual environment of torch that the tests of training use, and its small trainer with planted faults.

`scripts/install-trainer.sh` makes it; where it can't be had the tests are skipped, but not in CI.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LAB = str(HERE / "lab_trainer.py")
_INSTALL = HERE.parents[1] / "scripts" / "install-trainer.sh"
_WAIT_S = 280


@cache
def trainer_bin() -> Path:
    """The folder with `python` and `torchrun`."""
    home = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache" / "benchhouse-tests"))
    done = subprocess.run([_INSTALL], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    if done.returncode:
        said = f"no torch for the tests of training: {done.stderr.strip()[-800:]}"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)
    return home / "trainer" / "bin"


def trainer_python() -> str:
    """It has torch, transformers, accelerate, lightning, pyarrow and s3fs."""
    return str(trainer_bin() / "python")


def lab(*options: object) -> dict[str, object]:
    """A `target` of `training.run`: the small trainer with these options."""
    return {"argv": [trainer_python(), LAB, *map(str, options)], "name": "lab"}
