"""A real Apptainer and two small images for tests.

from services.containers import apptainer, images     # fixtures; they skip with the reason where there is none
"""

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchhouse.sites.images import add

_SCRIPTS = Path(__file__).parents[2] / "scripts"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse-tests"


@functools.cache
def _found() -> tuple[str, str]:
    """The folder of the program, and why there is none."""
    if found := shutil.which("apptainer"):
        return str(Path(found).parent), ""
    own = _CACHE / "apptainer" / "prefix" / "bin"
    if (own / "apptainer").exists():
        return str(own), ""
    return "", "no apptainer: scripts/install-test-deps.sh brings one where this is root on Debian"


@functools.cache
def _made() -> tuple[str, str]:
    """The folder of the images, and why there is none."""
    done = subprocess.run([_SCRIPTS / "make-test-images.sh"], capture_output=True, text=True, check=False, timeout=250)
    folder = done.stdout.strip()
    if done.returncode == 0:  # some machines can make an image, and not enter it
        command = [f"{_found()[0]}/apptainer", "exec", f"{folder}/plain.sif", "/bin/id"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return folder, (done.stderr.strip() or f"exit code {done.returncode}")[-500:] if done.returncode else ""


@pytest.fixture
def apptainer(monkeypatch, tmp_path) -> str:
    """Its path; it is on PATH for this process and those that it starts."""
    folder, why = _found()
    if why:
        pytest.skip(why)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "apptainer"))
    return f"{folder}/apptainer"


@dataclass(frozen=True)
class Images:
    """Pinned, in a folder of the test's own."""

    python: Path  # Debian 12, Python 3.11
    plain: Path  # busybox alone

    @property
    def folder(self) -> Path:
        return self.python.parent


@pytest.fixture
def images(apptainer, tmp_path) -> Images:
    made, why = _made()
    if why:
        pytest.skip(f"no test images: {why}")
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("python.sif", "plain.sif"):
        shutil.copyfile(Path(made) / name, folder / name)
        add(folder / name)
    return Images(folder / "python.sif", folder / "plain.sif")


@pytest.fixture
def unpacked(tmp_path, images, apptainer):
    """The files of the image without Python."""
    made = tmp_path / "unpacked"
    subprocess.run([apptainer, "--silent", "build", "--sandbox", made, images.plain], check=True)
    for name in (".singularity.d", "singularity", "environment", ".run", ".exec", ".shell", ".test"):
        subprocess.run(["rm", "-rf", made / name], check=True)
    return made
