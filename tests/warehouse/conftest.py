"""The workspace that these tests fill; `trial_maker` is shared with the tests of lineage and the scale benchmark."""

import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceFolder:
    return WorkspaceFolder(tmp_path / "ws")
