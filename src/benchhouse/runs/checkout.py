"""The git checkout that a scenario lies in: what its trials name as their source."""

import subprocess
from pathlib import Path
from typing import Any


def checkout(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the folder that holds the scenario; empty where that is not a git checkout."""
    command = ["git", "-C", str(folder)]
    try:
        head = subprocess.run([*command, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        state = subprocess.run([*command, "status", "--porcelain"], capture_output=True, text=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": head.stdout.strip(), "dirty": bool(state.stdout.strip())}
