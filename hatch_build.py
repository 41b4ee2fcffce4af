"""Compiles the poller of the load engine (`src/benchhouse/load/_poller.c`) for the wheel.

It uses the stable ABI, so one wheel serves every Python from 3.11 on. Without a compiler or Python's headers the wheel
is pure Python: the engine then uses `poller.py`, which does the same and costs more. `CC` names the compiler, for
another machine too, and `WHEEL_PLATFORM` the machine that it compiles for: see scripts/build-wheels.sh.
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
_NAME = "_poller.abi3.so"
_FLAGS = ("-std=gnu11", "-O2", "-s", "-fPIC", "-shared", "-Wall")


class CompilePoller(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root) / _FOLDER
        # An editable install is used where it stands; a wheel may be for another machine, and leaves nothing there.
        made = (folder if version == "editable" else Path(tempfile.mkdtemp())) / _NAME
        made.unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        include = f"-I{sysconfig.get_path('include')}"
        line = [*compiler, *_FLAGS, include, "-o", str(made), str(folder / "_poller.c")]
        try:
            subprocess.run(line, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as problem:
            reason = getattr(problem, "stderr", "") or str(problem)
            self.app.display_warning(f"the load engine is not compiled, and will need more CPU: {reason[-500:]}")
            return
        if version == "editable":
            return
        build_data["force_include"][str(made)] = f"benchhouse/load/{_NAME}"
        build_data["pure_python"] = False
        platform = os.environ.get("WHEEL_PLATFORM") or sysconfig.get_platform()
        build_data["tag"] = f"cp311-abi3-{platform.replace('-', '_').replace('.', '_')}"
