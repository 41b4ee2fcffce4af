"""A fake NVML, compiled once a test process, for processes of its own: the loader takes the first that it finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
    """A fake library under the name that the loader looks for."""
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, HERE / "fake_nvml.c"], check=True)
    return path


@pytest.fixture
def python_with():
    """Runs Python where the loader finds the libraries of a folder."""

    def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environ = os.environ | {"LD_LIBRARY_PATH": str(folder)}
        return subprocess.run([sys.executable, *arguments], env=environ, capture_output=True, text=True)

    return run
