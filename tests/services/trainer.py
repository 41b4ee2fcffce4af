"""The virtual environment of torch that the tests of training use, and its small trainer with planted faults.

`scripts/install-trainer.sh` makes it, and `install-loader.sh` one that reads Parquet and S3; where they can't be had
the tests are skipped, but not in CI.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LAB = str(HERE / "lab_trainer.py")
_SCRIPTS = HERE.parents[1] / "scripts"
_WAIT_S = 280


def trainer_bin() -> Path:
    """The folder with `python` and `torchrun`."""
    return _installed("trainer")


def loader_python() -> str:
    """A Python that has torch, pyarrow and s3fs."""
    return str(_installed("loader") / "python")


@cache
def _installed(name: str) -> Path:
    home = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache" / "benchhouse-tests"))
    install = _SCRIPTS / f"install-{name}.sh"
    done = subprocess.run([install], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    if done.returncode:
        said = f"no torch for the tests of training: {done.stderr.strip()[-800:]}"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)
    return home / name / "bin"


def lab(*options: object) -> dict[str, object]:
    """A `target` of `training.run`: the small trainer with these options."""
    return {"argv": [str(trainer_bin() / "python"), LAB, *map(str, options)], "name": "lab"}
