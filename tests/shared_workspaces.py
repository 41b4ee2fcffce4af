"""Workspaces with finished runs that many tests read: built once in a whole test run, copied for each test."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from laboratory import Lab


def shared_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that all pytest-xdist workers share; the first worker that needs it calls `build(folder)`.

    The folder must not change afterwards: tests that write take a copy (`copy_workspace`).
    """
    root = factory.getbasetemp()
    if root.name.startswith("popen-"):  # of one worker; the folder above it belongs to the whole test run
        root = root.parent
    folder, finished = root / f"shared-{name}", root / f"shared-{name}.finished"
    with (root / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)  # a build that failed in another worker
            folder.mkdir()
            build(folder)
            finished.touch()
    return folder


def copy_workspace(source: Path, target: Path) -> None:
    """Copy a workspace. The files are real copies, because tests damage evidence in place, and append to ledgers."""
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def build_once(root: Path) -> None:
    """One finished run of the experiment `once` with two trials, n=0 and n=1, as scenario `s`."""
    Lab(root).run("once", workload={"n": [0, 1]})
