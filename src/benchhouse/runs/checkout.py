"""The git checkout that contains a scenario, recorded as the source of its trials."""

import subprocess
from pathlib import Path
from typing import Any

_MOST_COMMITS = 10_000


def checkout(folder: Path) -> dict[str, Any]:
    """Return the commit and dirty flag of the scenario's folder; empty if it is not in a git checkout."""
    head = _git(folder, "rev-parse", "HEAD")
    return {"commit": head, "dirty": bool(_git(folder, "status", "--porcelain"))} if head else {}


def commits_of(folder: Path, branch: str) -> list[str]:
    """Return the commits of a branch as this checkout knows it, newest first; empty if there is no such branch."""
    for kind in ("heads", "remotes"):
        name = f"refs/{kind}/{branch}^{{commit}}"
        if commit := _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", name):
            return _git(folder, "rev-list", f"--max-count={_MOST_COMMITS}", commit).split()
    return []


def _git(folder: Path, *words: str) -> str:
    """Return git's output; empty if git fails or is missing."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
