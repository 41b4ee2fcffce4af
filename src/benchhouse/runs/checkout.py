"""The git checkout that a scenario lies in: what its trials name as their source."""

import subprocess
from pathlib import Path
from typing import Any

_MOST_COMMITS = 10_000


def checkout(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the folder that holds the scenario; empty where that is not a git checkout."""
    head = _git(folder, "rev-parse", "HEAD")
    return {"commit": head, "dirty": bool(_git(folder, "status", "--porcelain"))} if head else {}


def commits_of(folder: Path, branch: str) -> list[str]:
    """Commits of a branch as this checkout knows it, the newest first; empty where there is no such branch."""
    for kind in ("heads", "remotes"):
        name = f"refs/{kind}/{branch}^{{commit}}"
        if commit := _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name):
            return _git(folder, "rev-list", f"--max-count={_MOST_COMMITS}", commit).split()
    return []


def _git(folder: Path, *words: str) -> str:
    """What git answers; empty where it says no, or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
