"""Search a program's output for numbers with a user's patterns, in a separate process that is stopped if it takes too

long. Run as a program, it answers each line of JSON on stdin with one on stdout. It imports none of our modules, so
that it starts at once.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType

_PATTERN_S, _MIB_S = 1.0, 1.0  # CPU time for one pattern, and more for each MiB of the text


class SlowPattern(Exception):  # noqa: N818 - an outcome, not a bug
    """A pattern took too long, and the search has ended; the message is its name."""


class PatternSearch:
    """Finds the matches of the first group of each pattern, text by text."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = patterns
        self._process: subprocess.Popen[str] | None = None

    def find(self, text: str) -> dict[str, list[str]]:
        """Return the matches of each pattern in a text. Raise SlowPattern if a pattern takes too long."""
        if self._process is None:
            argv = [sys.executable, "-I", "-S", __file__]
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._send(self._patterns)
        self._send(text)
        assert self._process.stdout
        answer = json.loads(self._process.stdout.readline())
        if isinstance(answer, str):
            raise SlowPattern(answer)
        found: dict[str, list[str]] = answer
        return found

    def close(self) -> None:
        if self._process:
            self._process.communicate()
            self._process = None

    def _send(self, value: object) -> None:
        assert self._process and self._process.stdin
        self._process.stdin.write(f"{json.dumps(value)}\n")
        self._process.stdin.flush()


class _SearchTooLong(Exception):  # noqa: N818 - never leaves this module
    pass


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise _SearchTooLong


def _main() -> None:
    signal.signal(signal.SIGVTALRM, _too_long)
    patterns = {name: re.compile(text, re.MULTILINE) for name, text in json.loads(sys.stdin.readline()).items()}
    for line in sys.stdin:
        text, found, name = json.loads(line), {}, ""
        try:
            for name, pattern in patterns.items():
                signal.setitimer(signal.ITIMER_VIRTUAL, _PATTERN_S + _MIB_S * len(text) / 2**20)
                found[name] = [match[1] or "" for match in pattern.finditer(text)]
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _SearchTooLong:
            print(json.dumps(name), flush=True)
            return
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
