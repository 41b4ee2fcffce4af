"""Compiles the hot parts of the load engine (`src/benchhouse/load/_*.c`, each a module) for the wheel.

They use the stable ABI, so one wheel serves every Python from 3.11 on. Without a compiler or Python's headers the wheel
is pure Python: the engine then uses modules that do the same and cost more. `CC` names the compiler, for another
machine too, and `WHEEL_PLATFORM` the machine that it compiles for: see scripts/build-wheels.sh.
"""

import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path("src/benchhouse/load")
_FLAGS = ("-std=gnu11", "-O2", "-s", "-fPIC", "-shared", "-Wall")


class CompileEngine(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / _FOLDER
        # An editable install is used where it stands; a wheel may be for another machine, and leaves nothing there.
        target = folder if version == "editable" else Path(tempfile.mkdtemp())
        compiler = shlex.split(os.environ.get("CC", "cc"))
        include = f"-I{sysconfig.get_path('include')}"
        for source in sorted(folder.glob("_*.c")):
            made = target / f"{source.stem}.abi3.so"
            made.unlink(missing_ok=True)
            line = [*compiler, *_FLAGS, include, "-o", str(made), str(source)]
            try:
                subprocess.run(line, check=True, capture_output=True, text=True)
            except (OSError, subprocess.CalledProcessError) as problem:
                reason = getattr(problem, "stderr", "") or str(problem)
                self.app.display_warning(f"{source.name} is not compiled, and load needs more CPU: {reason[-500:]}")
                continue
            if version != "editable":
                build_data["force_include"][str(made)] = f"benchhouse/load/{made.name}"
                build_data["pure_python"] = False
        if build_data["pure_python"]:
            return
        platform = os.environ.get("WHEEL_PLATFORM") or sysconfig.get_platform()
        build_data["tag"] = f"cp311-abi3-{platform.replace('-', '_').replace('.', '_')}"
