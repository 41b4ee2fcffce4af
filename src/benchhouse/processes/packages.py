"""How runtimes bring packages to where a worker runs: by uv where there is one, else by pip; ours is never copied."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from benchhouse.schema.errors import BenchError, Exit

OURS = Path(__file__).resolve().parent.parent


def find_uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def run_installer(command: list[str], failure: str, hint: str) -> str:
    """What the command prints. It runs without what would let the packages of this process into the build."""
    kept = {key: item for key, item in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    completed = subprocess.run(command, capture_output=True, check=False, env=kept)
    if completed.returncode:
        lines = (completed.stdout + completed.stderr).decode("utf-8", "replace").strip().splitlines()
        raise BenchError(f"{failure}:\n" + "\n".join(lines[-15:]), hint, Exit.TRIAL_FAILED)
    return completed.stdout.decode("utf-8", "replace")


def own_metadata() -> dict[str, str]:
    """The files of our distribution by which its drivers and experiments are found."""
    ours = distribution("benchhouse")
    return {name: ours.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}


def write_own_metadata(site: Path) -> None:
    info = site / f"benchhouse-{distribution('benchhouse').version}.dist-info"
    info.mkdir()
    for name, text in own_metadata().items():
        (info / name).write_text(text, encoding="utf-8")


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """A file that nobody ever sees half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.new")
    made.write_text(text, encoding="utf-8")
    made.chmod(mode)
    made.replace(path)
