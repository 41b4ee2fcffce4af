"""A real filesystem of one megabyte, where this user may mount one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from _mounted(tmp_path / "small", "size=1m")


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    yield from _mounted(tmp_path / "read-only", "size=8m,ro")


def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a filesystem")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
