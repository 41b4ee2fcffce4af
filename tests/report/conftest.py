"""Made-up report data, and real sealed trials in a warehouse (`trial_maker` belongs to the warehouse's tests)."""

import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import Workspace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "warehouse")]


@pytest.fixture(scope="session")
def sweep():
    import made_up

    return made_up.sweep()


@pytest.fixture
def collected(tmp_path: Path) -> Workspace:
    """Run run-a: two targets, two values of ef, five repetitions, a warm-up and one failure."""
    from trial_maker import make_run, make_trial

    from benchhouse.warehouse.ingest import collect

    workspace = Workspace(tmp_path / "ws")
    folders = [*make_run(workspace, "run-a", 5), make_trial(workspace, "run-a", 9, outcome="error", minute=5)]
    collect(workspace, "run-a", folders)
    return workspace
