"""The command that starts another process of this Python with benchhouse."""

import sys
from pathlib import Path

START = "start.py"  # replaces an interpreter that only finds benchhouse through it: `worker_layer`, `worker_copy`


def python_command() -> list[str]:
    """Return the command, to be followed by `-m MODULE`. In a container, only this process may have our code on its
    path."""
    words = sys.orig_argv[1:]
    before = words[: words.index("-m")] if "-m" in words else []
    if any(Path(word).name == START for word in before):
        return [sys.executable, *before]
    return [sys.executable, "-P"]
