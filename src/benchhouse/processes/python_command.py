"""The command that starts this Python with benchhouse once more."""

import sys
from pathlib import Path

START = "start.py"  # what stands for an interpreter that has benchhouse only by it: `worker_layer`, `worker_copy`


def python_command() -> list[str]:
    """To be followed by `-m MODULE`. Inside of a container our code may be on no path but that of this process."""
    words = sys.orig_argv[1:]
    before = words[: words.index("-m")] if "-m" in words else []
    if any(Path(word).name == START for word in before):
        return [sys.executable, *before]
    return [sys.executable, "-P"]
