"""One filled workspace a session, copied for each test: sealing trials costs more than copying them."""

import shutil
import sys
from pathlib import Path

import pytest

from benchhouse.schema.layout import WorkspaceFolder

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "warehouse")]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> WorkspaceFolder:
    import claim_maker

    return claim_maker.fill(WorkspaceFolder(tmp_path_factory.mktemp("claims") / "ws"))


@pytest.fixture
def workspace(filled: WorkspaceFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkspaceFolder:
    monkeypatch.setenv("BENCH_KEYS_DIR", str(tmp_path / "keys"))
    shutil.copytree(filled.root, tmp_path / "ws")
    return WorkspaceFolder(tmp_path / "ws")
