"""Laboratories in which a run has already finished."""

from pathlib import Path

import pytest
from laboratory import Lab
from shared_workspaces import build_once, copy_workspace, shared_once


@pytest.fixture(scope="session")
def once_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one finished run of two trials, n=0 and n=1; tests only read it, or copy it."""
    return shared_once(tmp_path_factory, "once", build_once) / "ws"


@pytest.fixture
def lab_with_run(lab: Lab, once_workspace: Path) -> Lab:
    """A laboratory with a copy of that workspace."""
    copy_workspace(once_workspace, lab.workspace)
    return lab
