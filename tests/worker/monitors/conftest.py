"""A fake NVML, compiled once a test process."""

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> str:
    made = tmp_path_factory.mktemp("nvml") / "libnvidia-ml-fake.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", made, HERE / "fake_nvml.c"], check=True)
    return str(made)


@pytest.fixture
def faults(tmp_path) -> Iterator[Path]:
    """Lines of "CALL GPU CODE": from then on that call fails."""
    path = tmp_path / "faults"
    path.write_text("")
    ctypes.CDLL(None).setenv(b"FAKE_NVML_FAULTS", str(path).encode(), 1)
    yield path
    ctypes.CDLL(None).unsetenv(b"FAKE_NVML_FAULTS")
