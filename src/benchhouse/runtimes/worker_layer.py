"""A worker layer: what the worker needs beyond a bare Python, in a folder that a container is shown."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from benchhouse.schema.container import Bind
from benchhouse.schema.digests import digest
from benchhouse.schema.errors import BenchError, Exit

OURS = Path(__file__).resolve().parent.parent
_NEEDS = (
    "pydantic", "PyYAML", "pydantic_core", "annotated-types", "typing_extensions", "typing-inspection",
    "nvidia-ml-py", "prometheus-client",
)  # fmt: skip
_START = '''"""Stands for the interpreter: `start.py -m MODULE ...`, the layer behind the image's own packages."""

import runpy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
if len(sys.argv) < 3 or sys.argv[1] != "-m":
    sys.exit("usage: start.py -m MODULE ARGUMENTS...")
module = sys.argv[2]
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__", alter_sys=True)
'''


@dataclass(frozen=True)
class Layer:
    """For one version of Python on one kind of machine; made once, with the versions that are installed here.

    Our own package is not copied: it is bound over an empty folder, so that worker and orchestrator are one version.
    """

    home: Path
    python: str  # 3.11
    machine: str
    libc: str

    @property
    def folder(self) -> Path:
        made_of = [self.python, self.machine, self.libc, _pins(), _START, _metadata()]
        return self.home / f"python{self.python}-{self.machine}-{digest(made_of)[:12]}"

    @property
    def start(self) -> Path:
        return self.folder / "start.py"

    def bind(self) -> Bind:
        return Bind(str(OURS), str(self.folder / "benchhouse"), read_only=True)

    def make(self, compile_in: Callable[[Path], None]) -> None:
        """`compile_in` is called with the folder before it gets its name: inside, nothing can be compiled any more."""
        folder = self.folder
        if folder.is_dir():
            return
        made = folder.with_name(f".{folder.name}.{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        try:
            self._install(made)
            (made / "benchhouse").mkdir()
            info = made / f"benchhouse-{version('benchhouse')}.dist-info"
            info.mkdir()
            for name, text in _metadata().items():
                (info / name).write_text(text, encoding="utf-8")
            (made / "start.py").write_text(_START, encoding="utf-8")
            compile_in(made)
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _install(self, into: Path) -> None:
        wheels = ["--target", str(into), "--no-deps", "--only-binary", ":all:", "--python-version", self.python]
        musl = not self.libc.startswith("glibc")
        if uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)):
            platform = f"{self.machine}-unknown-linux-musl" if musl else f"{self.machine}-{self._manylinux()}"
            command = [uv, "pip", "install", "--quiet", *wheels, "--python-platform", platform]
        else:
            tags = (
                ["musllinux_1_1", "musllinux_1_2"] if musl else ["manylinux2014", "manylinux_2_17", self._manylinux()]
            )
            platforms = [word for tag in tags for word in ("--platform", f"{tag}_{self.machine}")]
            quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
            command = [sys.executable, "-m", "pip", "install", *quiet, *wheels, *platforms, "--implementation", "cp"]
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run([*command, *_pins()], capture_output=True, check=False, env=kept)
        if done.returncode:
            said = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines()
            raise BenchError(
                f"the worker's packages for Python {self.python} could not be brought:\n" + "\n".join(said[-10:]),
                "on a login node that reaches the package index: bench fetch -c SCENARIO",
                Exit.TRIAL_FAILED,
            )

    def _manylinux(self) -> str:
        numbers = [int(part) for part in self.libc.removeprefix("glibc ").split(".") if part.isdigit()]
        return "manylinux_2_28" if numbers >= [2, 28] else "manylinux_2_17"


def _pins() -> list[str]:
    found = []
    for name in _NEEDS:
        try:
            found.append(f"{name}=={version(name)}")
        except PackageNotFoundError:  # an older pydantic needs fewer
            continue
    return found


def _metadata() -> dict[str, str]:
    """By which our drivers and experiments are found."""
    ours = distribution("benchhouse")
    return {name: ours.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
