"""An isolated virtual environment per set of requirements, made once and cached by the digest of what is in it."""

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.scenario import Runtime

_OURS = Path(__file__).resolve().parent.parent
_WORKER_NEEDS = ("pydantic", "PyYAML")  # what `benchhouse.worker` imports; the rest of our core stays outside


class VenvRuntime:
    """Our own package is linked in, so that worker and orchestrator are one version, whatever the venv holds."""

    def prepare(self, spec: Runtime, cache: Path) -> None:
        folder = self._folder(spec, cache)
        ready = folder / "ready"
        if not ready.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with (folder.parent / f"{folder.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not ready.exists():
                    self._build(spec, folder)

    def python(self, spec: Runtime, cache: Path) -> tuple[str, ...]:
        return (str(self._folder(spec, cache) / "bin" / "python"), "-I")  # not even PYTHONPATH reaches into it

    def packages(self, spec: Runtime, cache: Path) -> str:
        state = "made before" if (self._folder(spec, cache) / "ready").exists() else "to be made"
        return f"isolated venv ({state}): {', '.join(spec.requirements) or 'nothing but the worker'}"

    def _folder(self, spec: Runtime, cache: Path) -> Path:
        local = {item: _tree_stamp(Path(item)) for item in spec.requirements if Path(item).exists()}
        key = {
            "requirements": sorted(spec.requirements),
            "python": spec.python or [sys.executable, sys.version],
            "local": local,
            "benchhouse": [str(_OURS), version("benchhouse")],
        }
        return cache / "venvs" / digest(key)[:16]

    def _build(self, spec: Runtime, folder: Path) -> None:
        """Build in place (a venv can't be moved); `ready` is written last, and a build that fails leaves nothing."""
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for step in _steps(spec, folder):
                done = subprocess.run(
                    step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, env=_clean_environment()
                )
                if done.returncode:
                    tail = "\n".join(done.stdout.decode("utf-8", "replace").strip().splitlines()[-15:])
                    raise BenchError(
                        f"the isolated environment could not be made:\n{tail}",
                        "check runtime.requirements and that the package index can be reached",
                        Exit.TRIAL_FAILED,
                    )
            _link_ourselves(next((folder / "lib").glob("python*/site-packages")))
            (folder / "ready").touch()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _steps(spec: Runtime, folder: Path) -> list[list[str]]:
    wanted = [str(Path(item).absolute()) if Path(item).exists() else item for item in spec.requirements]
    python, interpreter = spec.python or sys.executable, str(folder / "bin" / "python")
    if uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)):
        install = [uv, "pip", "install", "--python", interpreter, "--compile-bytecode"]
        return [[uv, "venv", "--python", python, str(folder)], [*install, *_WORKER_NEEDS, *wanted]]
    install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check"]
    return [[python, "-m", "venv", str(folder)], [*install, *_WORKER_NEEDS, *wanted]]


def _clean_environment() -> dict[str, str]:
    """Without what would let the parent's packages into the build."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def _link_ourselves(site: Path) -> None:
    """Our package, and the metadata by which its drivers are found."""
    link = site / "benchhouse"
    if not link.exists():
        link.symlink_to(_OURS, target_is_directory=True)
        ours = distribution("benchhouse")
        info = site / f"benchhouse-{ours.version}.dist-info"
        info.mkdir()
        for name in ("METADATA", "entry_points.txt"):
            (info / name).write_text(ours.read_text(name) or "", encoding="utf-8")


def _tree_stamp(path: Path) -> str:
    """Changes when a local package does."""
    files = sorted(item for item in path.rglob("*.py")) if path.is_dir() else [path]
    files += [item for item in [path / "pyproject.toml"] if item.exists()]
    return digest([[str(item), item.stat().st_mtime_ns, item.stat().st_size] for item in files])
