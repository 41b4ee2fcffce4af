"""Search lines of a log for numbers with a user's patterns, in a separate process that is stopped if it takes too long.

Run as a program, it reads the patterns and lines from stdin and writes its matches. It imports none of our modules, so
that it starts at once.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

_LINE_S = 1.0  # CPU time for one line
_ALL_S = 120.0  # CPU time for all lines
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
Record = dict[str, Any]


@dataclass(frozen=True)
class TimedLine:
    process: int  # index in the caller's list
    at_s: float
    text: str


@dataclass(frozen=True)
class PatternSearchResult:
    records: list[tuple[int, Record]]
    """Each record with the process of its line."""
    matches: Mapping[str, int]
    """The number of lines in which each pattern found a number; except for `step`, only lines with a step count."""
    slow: str = ""
    """The pattern that took too long, with the line at which the search stopped; empty if none did."""


def search(lines: Iterable[TimedLine], patterns: Mapping[str, str]) -> PatternSearchResult:
    given = [json.dumps(patterns), *(json.dumps([line.process, line.at_s, line.text]) for line in lines)]
    argv = [sys.executable, "-I", "-S", __file__]
    done = subprocess.run(argv, input="\n".join(given), capture_output=True, text=True, check=True)
    *records, last = done.stdout.splitlines()
    return PatternSearchResult([(process, record) for process, record in map(json.loads, records)], **json.loads(last))


class _PatternTooLong(Exception):  # noqa: N818 - never leaves this module
    pass


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise _PatternTooLong


def _numbers(text: str, patterns: Mapping[str, "re.Pattern[str]"], current: list[str]) -> dict[str, float]:
    numbers = {}
    for name, pattern in patterns.items():
        current[:] = [name]
        if match := pattern.search(text):
            try:
                numbers[name] = float((match[1] or "").replace(",", ""))
            except ValueError:
                continue
        if "step" not in numbers:
            break
    return numbers


def _main() -> None:
    given = json.loads(sys.stdin.readline())
    patterns = {name: re.compile(given[name]) for name in ["step", *(name for name in given if name != "step")]}
    matches, current, slow = dict.fromkeys(patterns, 0), [""], ""
    signal.signal(signal.SIGVTALRM, _too_long)
    for line in sys.stdin:
        process, at_s, text = json.loads(line)
        text = _COLOUR.sub("", text)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, max(0.01, min(_LINE_S, _ALL_S - time.process_time())))
            numbers = _numbers(text, patterns, current)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _PatternTooLong:
            spent = "all lines together" if time.process_time() >= _ALL_S else "one line"
            slow = f"{current[0]} ({given[current[0]]!r}) takes too long on {spent}: {text[:80]!r}"
            break
        number = numbers.get("step")
        if number is not None and number.is_integer():
            for name in numbers:
                matches[name] += 1
            print(json.dumps([process, {**numbers, "step": int(number), "t": at_s}]))
    print(json.dumps({"matches": matches, "slow": slow}))


if __name__ == "__main__":
    _main()
