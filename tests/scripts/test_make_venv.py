"""`make venv`, which every other target begins with: short when it is well, whole when it is not."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = """
[project]
name = "project"
version = "1"
requires-python = ">=3.11"
dependencies = ["tiny"]
[project.optional-dependencies]
faiss = []
[tool.uv]
package = false
[tool.uv.sources]
tiny = { path = "tiny-1.0-py3-none-any.whl" }
"""
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(not UV or not shutil.which("make"), reason="needs uv and make")


@pytest.fixture
def checkout(tmp_path):
    """Our own Makefile and script, and a lock of one package that lies beside it."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts" / "make-venv.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("tiny-1.0.dist-info/WHEEL", kind)
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    call(tmp_path, UV, "lock", "--quiet")
    return tmp_path


def call(folder, *command):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV", "MAKE"))}
    more = {
        "PATH": f"{Path(UV).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(folder / "cache"),
    }
    return subprocess.run(
        command, cwd=folder, env=kept | more, capture_output=True, text=True, timeout=240, check=False
    )


def test_it_says_what_it_installs_and_how_long_that_took_and_no_more(checkout):
    done = call(checkout, "make", "venv")
    assert done.returncode == 0, done.stderr
    begins, ends = done.stderr.splitlines()
    assert begins.startswith("installing ") and "minute" in begins
    assert ends.startswith(".venv is made: ")
    assert done.stdout == ""
    assert call(checkout, ".venv/bin/python", "-c", "import tiny").returncode == 0


def test_an_installer_that_fails_says_why_and_stops_make(checkout):
    (checkout / "tiny-1.0-py3-none-any.whl").unlink()
    done = call(checkout, "make", "demo")
    assert done.returncode == 2
    assert "tiny-1.0-py3-none-any.whl" in done.stderr
    assert ".venv could not be made, for the reason above" in done.stderr
    assert not (checkout / ".venv" / "bin" / ".made").exists()
    assert "demo.sh" not in done.stderr
