"""An isolated virtual environment per set of requirements, made once and cached by the digest of what is in it."""

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.scenario import Runtime

_WORKER_NEEDS = ("pydantic", "PyYAML")  # what `benchhouse.worker` imports; the rest of our core stays outside


class VenvRuntime:
    """Our own package is linked in, so that worker and orchestrator are one version, whatever the venv holds."""

    def python(self, spec: Runtime, cache: Path) -> tuple[str, ...]:
        folder = self._folder(spec, cache)
        ready = folder / "ready"
        if not ready.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with (folder.parent / f"{folder.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not ready.exists():
                    self._build(spec, folder)
        return (str(folder / "bin" / "python"),)

    def packages(self, spec: Runtime, cache: Path) -> str:
        state = "made before" if (self._folder(spec, cache) / "ready").exists() else "to be made"
        return f"isolated venv ({state}): {', '.join(spec.requirements) or 'nothing but the worker'}"

    def _folder(self, spec: Runtime, cache: Path) -> Path:
        local = {item: _tree_stamp(Path(item)) for item in spec.requirements if Path(item).exists()}
        key = {"requirements": sorted(spec.requirements), "python": spec.python or sys.version, "local": local}
        return cache / "venvs" / digest(key)[:16]

    def _build(self, spec: Runtime, folder: Path) -> None:
        """Build under a temporary name beside the final one; a failed build leaves nothing."""
        shutil.rmtree(folder, ignore_errors=True)
        wanted = [str(Path(item).absolute()) if Path(item).exists() else item for item in spec.requirements]
        with tempfile.TemporaryFile("w+") as words:
            uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
            python = spec.python or sys.executable
            interpreter = str(folder / "bin" / "python")
            if uv:
                steps = [
                    [uv, "venv", "--python", python, str(folder)],
                    [uv, "pip", "install", "--python", interpreter, "--compile-bytecode", *_WORKER_NEEDS, *wanted],
                ]
            else:
                steps = [
                    [python, "-m", "venv", str(folder)],
                    [interpreter, "-m", "pip", "install", "--disable-pip-version-check", *_WORKER_NEEDS, *wanted],
                ]
            for step in steps:
                if subprocess.run(step, stdout=words, stderr=subprocess.STDOUT, check=False).returncode:
                    words.seek(0)
                    tail = "\n".join(words.read().strip().splitlines()[-15:])
                    shutil.rmtree(folder, ignore_errors=True)
                    raise BenchError(
                        f"the isolated environment could not be made:\n{tail}",
                        "check runtime.requirements and that the package index can be reached",
                        Exit.TRIAL_FAILED,
                    )
        site = next((folder / "lib").glob("python*/site-packages"))
        link = site / "benchhouse"
        if not link.exists():
            link.symlink_to(Path(__file__).resolve().parent.parent, target_is_directory=True)
        (folder / "ready").touch()


def _tree_stamp(path: Path) -> str:
    """Changes when a local package does."""
    files = sorted(item for item in path.rglob("*.py")) if path.is_dir() else [path]
    files += [item for item in [path / "pyproject.toml"] if item.exists()]
    return digest([[str(item), item.stat().st_mtime_ns, item.stat().st_size] for item in files])
