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

from benchhouse.runtimes.apptainer import ApptainerRuntime
from benchhouse.schema.protocols import RuntimeContext
from benchhouse.schema.resources import RuntimeSettings
from benchhouse.sites.images import add

_SCRIPTS = Path(__file__).parents[2] / "scripts"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "benchhouse-tests"
_IMAGES = ("python.sif", "plain.sif")


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


@functools.cache
def _worker_layers() -> Path:
    """The folder with the worker layers of the test image; a machine makes them once, named by their content."""
    image = Path(_made()[0]) / "python.sif"
    ApptainerRuntime().prepare(RuntimeSettings(kind="apptainer"), RuntimeContext(cache=_CACHE, image=str(image)))
    return _CACHE / "containers"


@functools.cache
def _record() -> str:
    """The record of the images, in the folder that the script returned."""
    folder = Path(_made()[0])
    if not (folder / "images.json").exists():
        for name in _IMAGES:
            add(folder / name)
    return (folder / "images.json").read_text()


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

    def use_prepared_layers(self, cache: Path) -> None:
        """Put what the runtime has prepared for the images into a cache folder, by hard links."""
        for name in ("layers", "looks"):
            shutil.copytree(_worker_layers() / name, cache / "containers" / name, copy_function=os.link, symlinks=True)


@pytest.fixture
def images(apptainer, tmp_path) -> Images:
    made, why = _made()
    if why:
        pytest.skip(f"no test images: {why}")
    folder = tmp_path / "images"
    folder.mkdir()
    record = _record()
    for name in _IMAGES:
        shutil.copy2(Path(made) / name, folder / name)
    (folder / "images.json").write_text(record.replace(made, str(folder)))
    return Images(folder / "python.sif", folder / "plain.sif")


@pytest.fixture
def unpacked(tmp_path, images, apptainer):
    """The files of the image without Python."""
    made = tmp_path / "unpacked"
    subprocess.run([apptainer, "--silent", "build", "--sandbox", made, images.plain], check=True)
    for name in (".singularity.d", "singularity", "environment", ".run", ".exec", ".shell", ".test"):
        subprocess.run(["rm", "-rf", made / name], check=True)
    return made
