"""Programs of the machine that are asked a question: with a time limit, and no answer is an answer."""

import os
import shutil
import subprocess
from collections.abc import Sequence

LIMIT_S = 5.0


def ask(command: Sequence[str], *, good: Sequence[int] = (0,), limit_s: float | None = None) -> str | None:
    """What it prints; None where there is no such program, it fails, or it takes too long. It never waits for input."""
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
    """The path of the first of these programs that is there."""
    return next((path for name in names if (path := shutil.which(name))), None)
