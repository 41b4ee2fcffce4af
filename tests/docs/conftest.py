"""Commands of the documentation, run as a reader would run them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for doc_pages

Bash = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bash(tmp_path_factory: pytest.TempPathFactory) -> Bash:
    """Run a line of shell in a folder: our `bench` first on the path, no options from the environment, an own cache."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "BENCH_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "PYTHONDONTWRITEBYTECODE": "",
        "NO_COLOR": "1",
    }

    def run(line: str, folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment | extra, capture_output=True, text=True, check=False
        )

    return run
