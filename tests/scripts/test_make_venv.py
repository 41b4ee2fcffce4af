"""`make venv`, `make venv-demo` and `make venv-test` fill one .venv in steps, in any order."""

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
[dependency-groups]
dev = ["checker"]
test = ["heavy"]
[tool.uv]
package = false
[tool.uv.sources]
"""
PACKAGES = ("tiny", "checker", "heavy")
LEVELS = {"venv-demo": ["tiny"], "venv": ["tiny", "checker"], "venv-test": ["tiny", "checker", "heavy"]}
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
pytestmark = pytest.mark.skipif(not UV or not shutil.which("make"), reason="needs uv and make")


def wheel(folder: Path, name: str) -> str:
    """A package of one empty module; returns its line in pyproject.toml."""
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as content:
        content.writestr(f"{name}.py", "")
        content.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        content.writestr(f"{name}-1.0.dist-info/WHEEL", kind)
        content.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return f'{name} = {{ path = "{name}-1.0-py3-none-any.whl" }}\n'


@pytest.fixture
def checkout(tmp_path):
    """The Makefile and the script of this repository, and a lock of three packages in the same folder."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "scripts" / "make-venv.sh", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(PROJECT + "".join(wheel(tmp_path, name) for name in PACKAGES))
    call(tmp_path, UV, "lock", "--quiet")
    return tmp_path


def installed(folder: Path) -> list[str]:
    code = "import importlib.util as u, sys; print(*[name for name in sys.argv[1:] if u.find_spec(name)])"
    return call(folder, ".venv/bin/python", "-c", code, *PACKAGES).stdout.split()


def call(folder, *command):
    others = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV", "MAKE"))}
    more = {
        "PATH": f"{Path(UV).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(folder / "cache"),
    }
    return subprocess.run(
        command, cwd=folder, env=others | more, capture_output=True, text=True, timeout=240, check=False
    )


def test_each_step_adds_its_packages_and_removes_none(checkout):
    for target, packages in LEVELS.items():
        done = call(checkout, "make", target)
        assert done.returncode == 0, done.stderr
        begins, ends = done.stderr.splitlines()
        assert begins.startswith("installing ") and ends.startswith(".venv is made: ")
        assert done.stdout == ""
        assert installed(checkout) == packages
    again = call(checkout, "make", *LEVELS)
    assert again.stderr == "", "nothing is installed twice"


def test_steps_that_run_at_the_same_time_wait_for_each_other(checkout):
    done = call(checkout, "make", "-j3", *reversed(LEVELS))
    assert done.returncode == 0, done.stderr
    assert installed(checkout) == list(PACKAGES)
    (checkout / "uv.lock").touch()
    assert "installing " in call(checkout, "make", "venv-demo").stderr, "a new lock is installed"
    assert installed(checkout) == list(PACKAGES)


def test_an_installer_that_fails_says_why_and_stops_make(checkout):
    (checkout / "tiny-1.0-py3-none-any.whl").unlink()
    done = call(checkout, "make", "demo")
    assert done.returncode == 2
    assert "tiny-1.0-py3-none-any.whl" in done.stderr
    assert ".venv could not be made, for the reason above" in done.stderr
    assert not (checkout / ".venv" / "bin" / ".made-demo").exists()
    assert "demo.sh" not in done.stderr
