"""The worker on a volume that nodes share: a copy of our own code by its content, and the layers of its packages."""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchhouse.processes.packages import OURS, START, find_uv, make_whole
from benchhouse.processes.worker_layer import WorkerLayer

_BESIDE = ("benchhouse_client.py", "benchhouse_training.py")  # modules of ours that are copied for programs
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


@functools.cache
def _content() -> str:
    """Return the digest of our current code; the version alone does not change with every edit."""
    total = hashlib.sha256(START.encode())
    paths = [
        os.path.join(folder, name)  # noqa: PTH118 - some 700 files, before every run
        for folder, _, names in os.walk(OURS)
        if not folder.endswith("__pycache__")
        for name in names
    ]
    for path in sorted(paths) + [str(OURS.parent / name) for name in _BESIDE]:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read()
        total.update(f"{path.removeprefix(str(OURS.parent))}\0{len(content)}\0".encode() + content)
    return total.hexdigest()[:12]


def code_folder(home: Path) -> Path:
    """Return the folder with `benchhouse` and `start.py`, which `copy_own_code` creates."""
    return home / f"code-{_content()}"


def copy_own_code(home: Path) -> None:
    """Copy our code atomically; do nothing if the copy exists."""
    folder = code_folder(home)
    if folder.is_dir():
        return
    with make_whole(folder) as made:
        shutil.copytree(OURS, made / "benchhouse", ignore=_IGNORED)
        for name in _BESIDE:
            shutil.copyfile(OURS.parent / name, made / name)
        compile_for(f"{sys.version_info[0]}.{sys.version_info[1]}", made)


def layer_for(home: Path, python: str, machine: str, libc: str, say: Callable[[str], None]) -> Path:
    """Return the folder with the packages that a worker needs in addition to a bare Python of that kind."""
    layer = WorkerLayer(home / "layers", python, machine, libc)
    if not layer.folder.is_dir():
        say(f"installing the worker's packages for Python {python} into {layer.folder} (once)")
        layer.make(lambda made: compile_for(python, made))
    return layer.folder


def compile_for(python: str, folder: Path) -> None:
    """Compile with this machine's Python of that version, if there is one: pods can't write there, and would
    recompile."""
    if python == "{}.{}".format(*sys.version_info[:2]):
        command = [sys.executable]
    elif uv := find_uv():
        found = subprocess.run([uv, "python", "find", python], capture_output=True, text=True, check=False)
        command = [found.stdout.strip()] if found.returncode == 0 else []
    else:
        command = []
    if command:
        subprocess.run([*command, "-I", "-m", "compileall", "-q", str(folder)], capture_output=True, check=False)
