"""Run programs of the machine to read facts, with a time limit; a missing answer is a valid result."""

import os
import shutil
import subprocess
from collections.abc import Sequence

LIMIT_S = 5.0


def ask(command: Sequence[str], *, good: Sequence[int] = (0,), limit_s: float | None = None) -> str | None:
    """Return what a command prints, or None if it is missing, fails, or takes too long. It gets no input."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s or LIMIT_S,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode in good else None


def installed(*names: str) -> str | None:
    """Return the path of the first of these programs that is installed, or None."""
    return next((path for name in names if (path := shutil.which(name))), None)
