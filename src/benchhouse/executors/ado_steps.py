"""What an operation of ado is at, read from what it prints: before its first point it starts for up to a minute."""

import re
from pathlib import Path

_STEPS = (
    (re.compile(rb"Created space with identifier:? *(\S+)"), "{0} is made; Ray starts"),
    (re.compile(rb"Started a local Ray instance|Connected to Ray cluster"), "Ray is up; the operation starts"),
    (re.compile(rb"=+ Starting Operation (\S+) =+"), "{0} measures {points}"),
)


class Steps:
    """Follows one log; each step is told once, however much is printed in between."""

    def __init__(self, log: Path, points: int) -> None:
        self.log = log
        self.points = f"{points} {'point' if points == 1 else 'points'}"
        self._read = 0
        self._rest = b""
        self._next = 0

    def news(self) -> str:
        """The newest step, where it was reached since the last call; else nothing."""
        told = ""
        for line in self._lines():
            for number, (pattern, words) in enumerate(_STEPS[self._next :], self._next):
                if found := pattern.search(line):
                    names = (name.decode(errors="replace") for name in found.groups())
                    told, self._next = words.format(*names, points=self.points), number + 1
                    break
        return told

    def _lines(self) -> list[bytes]:
        try:
            with self.log.open("rb") as file:
                file.seek(self._read)
                fresh = file.read()
        except OSError:
            return []
        self._read += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return lines
