"""A package of a nexus, checked where its Python packages are installed: an environment of its own, gone afterwards."""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import benchhouse
from benchhouse.nexus.resolution import UnresolvedError, find_uv, run_bounded
from benchhouse.schema.errors import BenchError, Exit
from benchhouse.schema.own_wheel import write_own_wheel

INSTALL_S = 900.0


def look_inside(package: str, nexus: Path, lock: str, timeout_s: float = INSTALL_S) -> dict[str, Any]:
    """What `bench packages validate PACKAGE --static --json` says there; raises UnresolvedError."""
    with TemporaryDirectory(prefix="bench-packages-") as name:
        folder = Path(name)
        python = _build(folder, lock, timeout_s)
        command = [str(python), "-I", "-m", "benchhouse", "-C", str(nexus.absolute()), "packages", "validate", package]
        environ = os.environ | {"BENCH_CACHE_DIR": str(folder / "cache")}
        code, out, said = run_bounded(
            [*command, "--static", "--json", "--nexus", str(nexus.absolute())], folder, timeout_s, environ
        )
        if code is None or not out.strip():
            raise UnresolvedError(f"'{package}' could not be looked at where it is installed: {said[-500:]}")
        found: dict[str, Any] = json.loads(out)
        if "findings" not in found:
            raise BenchError(str(found.get("error", said)), str(found.get("hint", "")))
        return found


def _build(folder: Path, lock: str, timeout_s: float) -> Path:
    """An environment with exactly what the lock says; this Benchhouse is linked into it."""
    venv, wanted = folder / "venv", folder / "requirements.txt"
    wanted.write_text(f"{lock}{write_own_wheel(folder)}\n", encoding="utf-8")
    uv, python = find_uv(), venv / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps"]
    for command in ([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], [*install, "-r", str(wanted)]):
        code, _, said = run_bounded(command, folder, timeout_s)
        if code != 0:
            what = f"took longer than {timeout_s:g} s" if code is None else "failed"
            message = f"the installation {what}:\n" + "\n".join(f"    {line}" for line in said.splitlines()[-15:])
            raise UnresolvedError(message, "each package alone:  uv pip install SPECIFIER", Exit.BAD_INPUT)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "benchhouse").symlink_to(Path(benchhouse.__file__).resolve().parent, target_is_directory=True)
    return python
