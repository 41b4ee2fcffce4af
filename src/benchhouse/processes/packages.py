"""How runtimes install packages where a worker runs: with uv if available, otherwise pip; ours is never copied."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

from benchhouse.processes.durable import put_in_place, sync_tree
from benchhouse.schema.errors import BenchError, Exit

OURS = Path(__file__).resolve().parent.parent
START = '''"""Stands for the interpreter: `start.py FOLDER... -m MODULE ...`, with FOLDERs and its own on the path."""

import runpy
import sys
from pathlib import Path

at = sys.argv.index("-m")
sys.path += [str(Path(__file__).parent), *sys.argv[1:at]]
module = sys.argv[at + 1]
del sys.argv[1 : at + 2]
runpy.run_module(module, run_name="__main__", alter_sys=True)
'''


def find_uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def run_installer(command: list[str], failure: str, hint: str) -> str:
    """Return the output of the command. It runs without variables that would expose this process's packages to the
    build."""
    kept = {key: item for key, item in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    completed = subprocess.run(command, capture_output=True, check=False, env=kept)
    if completed.returncode:
        lines = (completed.stdout + completed.stderr).decode("utf-8", "replace").strip().splitlines()
        raise BenchError(f"{failure}:\n" + "\n".join(lines[-15:]), hint, Exit.TRIAL_FAILED)
    return completed.stdout.decode("utf-8", "replace")


def distribution_metadata() -> dict[str, str]:
    """Return the files of our distribution by which its drivers and experiments are found."""
    ours = distribution("benchhouse")
    return {name: ours.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}


def write_own_metadata(site: Path) -> None:
    info = site / f"benchhouse-{distribution('benchhouse').version}.dist-info"
    info.mkdir()
    for name, text in distribution_metadata().items():
        (info / name).write_text(text, encoding="utf-8")


@contextmanager
def make_whole(folder: Path) -> Iterator[Path]:
    """Create a folder that is never visible incomplete: the yielded folder gets its final name at the end.

    Its `start.py` makes the contents available to a Python. If another process was faster, its folder stays.
    """
    made = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        (made / "start.py").write_text(START, encoding="utf-8")
        yield made
        sync_tree(made)
        put_in_place(made, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
