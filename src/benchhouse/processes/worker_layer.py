"""A worker layer: what the worker needs in addition to a bare Python, in a folder that is bound into a container."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchhouse.processes.packages import (
    OURS,
    START,
    distribution_metadata,
    find_uv,
    make_whole,
    run_installer,
    write_own_metadata,
)
from benchhouse.schema.container import Bind
from benchhouse.schema.digests import digest

_NEEDS = (
    "pydantic", "PyYAML", "pydantic_core", "annotated-types", "typing_extensions", "typing-inspection",
    "nvidia-ml-py", "prometheus-client",
)  # fmt: skip


@dataclass(frozen=True)
class WorkerLayer:
    """A layer for one version of Python on one kind of machine; created once, with the versions that are installed
    here.

    Our own package is not copied: it is bound over an empty folder, so that worker and orchestrator have one version.
    """

    home: Path
    python: str  # such as 3.11
    machine: str
    libc: str

    @property
    def folder(self) -> Path:
        made_of = [self.python, self.machine, self.libc, _pins(), START, distribution_metadata()]
        return self.home / f"python{self.python}-{self.machine}-{digest(made_of)[:12]}"

    @property
    def start(self) -> Path:
        return self.folder / "start.py"

    def bind(self) -> Bind:
        return Bind(str(OURS), str(self.folder / "benchhouse"), read_only=True)

    def make(self, compile_in: Callable[[Path], None]) -> None:
        """Create the layer. `compile_in` is called with the folder before it gets its name: a container can't compile
        in it."""
        folder = self.folder
        if folder.is_dir():
            return
        with make_whole(folder) as made:
            self._install(made)
            (made / "benchhouse").mkdir()
            write_own_metadata(made)
            compile_in(made)

    def _install(self, into: Path) -> None:
        wheels = ["--target", str(into), "--no-deps", "--only-binary", ":all:", "--python-version", self.python]
        musl = not self.libc.startswith("glibc")
        if uv := find_uv():
            platform = f"{self.machine}-unknown-linux-musl" if musl else f"{self.machine}-{self._manylinux()}"
            command = [uv, "pip", "install", "--quiet", *wheels, "--python-platform", platform]
        else:
            tags = (
                ["musllinux_1_1", "musllinux_1_2"] if musl else ["manylinux2014", "manylinux_2_17", self._manylinux()]
            )
            platforms = [word for tag in tags for word in ("--platform", f"{tag}_{self.machine}")]
            quiet = ["--quiet", "--disable-pip-version-check", "--no-compile"]
            command = [sys.executable, "-m", "pip", "install", *quiet, *wheels, *platforms, "--implementation", "cp"]
        failure = f"the worker's packages for Python {self.python} could not be installed"
        hint = "on a login node that reaches the package index: bench fetch -c SCENARIO"
        run_installer([*command, *_pins()], failure, hint)

    def _manylinux(self) -> str:
        numbers = [int(part) for part in self.libc.removeprefix("glibc ").split(".") if part.isdigit()]
        return "manylinux_2_28" if numbers >= [2, 28] else "manylinux_2_17"


@functools.cache
def _pins() -> tuple[str, ...]:
    pins = []
    for name in _NEEDS:
        try:
            pins.append(f"{name}=={version(name)}")
        except PackageNotFoundError:  # an older pydantic needs fewer
            continue
    return tuple(pins)
