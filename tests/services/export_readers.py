"""The libraries that read what `bench export` writes, in a virtual environment of their own.

`scripts/install-export-readers.sh` makes it; where it can't be had the tests are skipped, but not in CI.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_INSTALL = Path(__file__).resolve().parents[2] / "scripts" / "install-export-readers.sh"
_WAIT_S = 280
_OURS_FIRST = """
import site, sys
site.addsitedir(sys.argv.pop(1))
"""


@cache
def _folder() -> Path:
    home = Path(os.environ.get("BENCH_TEST_CACHE", Path.home() / ".cache" / "benchhouse-tests"))
    done = subprocess.run([_INSTALL], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    if done.returncode:
        said = f"no readers of exports: {done.stderr.strip()[-800:]}"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)
    return home / "export-readers"


def program(name: str) -> str:
    """A command that one of the libraries brings."""
    return str(_folder() / "bin" / name)


def read_with(code: str, folder: Path, *arguments: object) -> Any:
    """What code prints as JSON in their environment, which knows nothing of ours."""
    return _printed([program("python"), "-c", code], folder, arguments)


def run_with(code: str, folder: Path, *arguments: object) -> Any:
    """The same in ours, where their libraries are installed too, as an extra would bring them."""
    own = next((_folder() / "lib").glob("python3*/site-packages"))
    return _printed([sys.executable, "-c", _OURS_FIRST + code, str(own)], folder, arguments)


def _printed(command: list[str], folder: Path, arguments: tuple[object, ...]) -> Any:
    whole = [*command, *map(str, arguments)]
    done = subprocess.run(whole, cwd=folder, env=_quiet(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def _quiet(folder: Path) -> dict[str, str]:
    """They tell nobody anything, and mlcroissant keeps what it unpacked here: it knows a packet by its name alone.

    What they import is compiled once."""
    silent = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false", "NO_COLOR": "1"}
    own = {"CROISSANT_CACHE": str(folder / "unpacked"), "PYTHONDONTWRITEBYTECODE": ""}
    return dict(os.environ) | silent | own
