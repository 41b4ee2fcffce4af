"""Large libraries that few tests need, installed when the first of them runs, and not into .venv.

`provide("spark", "pyspark")` installs a dependency group of pyproject.toml with `scripts/install-group.sh`. Then this
process and those that it starts can import it. If it cannot be installed, the test is skipped, but fails in CI.
"""

import importlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

_INSTALL = Path(__file__).resolve().parents[2] / "scripts" / "install-group.sh"
_WAIT_S = 800  # Spark is built from source if uv has no wheel of it in its cache


_installed: dict[str, str] = {}


def provide(group: str, name: str) -> None:
    """Make the module of that name importable, which the group brings."""
    if group not in _installed:
        if find_spec(name):
            return  # .venv has it
        _installed[group] = _install(group)
    folder = _installed[group]
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()
    paths = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, folder])


def module(group: str, name: str) -> ModuleType:
    """The module of that name, which the group brings."""
    provide(group, name)
    return importlib.import_module(name)


def _install(group: str) -> str:
    done = subprocess.run([_INSTALL, group], capture_output=True, text=True, timeout=_WAIT_S, check=False)
    if done.returncode:
        reason = f"the packages of {group} cannot be installed: {done.stderr.strip()[-800:]}"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return done.stdout.strip()
