"""A file that was read: its data, and where in the text every key and value of it stands."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from benchhouse.documents.problems import Problem
from benchhouse.schema.quoting import shorten
from benchhouse.schema.secrets import shows_secret

Loc = tuple[str | int, ...]


class Spot(NamedTuple):
    """Where a value stands in the text, in characters from 0, and the (key, value) spots of what is in it."""

    start: int
    end: int
    members: Mapping[str | int, tuple["Spot", "Spot"]]


class _LineReader:
    """The lines of a text, each cut out and searched for secrets once: JSON may have a megabyte in one line, and many
    problems in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[int, str] = {}
        self._shown: dict[int, str] = {}

    @cached_property
    def starts(self) -> list[int]:
        """Where each line begins, as editors count lines; YAML itself would also break at U+2028."""
        ends = (match.end() for match in re.finditer(r"\r\n?|\n", self._text))
        return [0, *(end for end in ends if end < len(self._text))]

    def line(self, number: int) -> str:
        """A line, counted from 1, without its line break; empty past the end."""
        if not 1 <= number <= len(self.starts):
            return ""
        if number not in self._found:
            end = self.starts[number] if number < len(self.starts) else len(self._text)
            self._found[number] = self._text[self.starts[number - 1] : end].rstrip("\r\n")
        return self._found[number]

    def shown(self, number: int) -> str:
        """The same, or nothing if the line holds a secret: a message must not say what the file should not."""
        if number not in self._shown:
            line = self.line(number)
            self._shown[number] = "" if shows_secret(line) else line
        return self._shown[number]


@dataclass(frozen=True)
class Document:
    """A file that was read: its text without byte order mark, its data, and where all of it stands.

    Values that came through an alias or a merge key stand where their anchor was written.
    """

    path: str
    text: str = field(repr=False)
    data: Any
    positions: Spot = field(repr=False)
    _known_lines: _LineReader | None = field(default=None, repr=False, compare=False)

    def position(self, loc: Loc, key: bool = False) -> tuple[int, int]:
        """Line and column, from 1, of the value (or its key) at `loc`, or of its nearest ancestor that exists."""
        return self._place(self._spot(loc, key).start)

    def value(self, loc: Loc) -> Any:
        """The data at `loc`; None where there is none."""
        data = self.data
        for part in loc:
            try:
                data = data[part]
            except (KeyError, IndexError, TypeError):
                return None
        return data

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its line break; empty past the end."""
        return self._lines.line(number)

    def written(self, loc: Loc) -> str:
        """The value at `loc` as the user spelled it, cut short if it is long."""
        spot = self._spot(loc, False)
        return shorten(self.text[spot.start : spot.end].strip())

    def problem(self, loc: Loc, message: str, expected: str = "", suggestion: str = "", key: bool = False) -> Problem:
        """A problem with the value (or the key) at `loc`."""
        spot = self._spot(loc, key)
        return self.problem_at(spot.start, spot.end, message, expected, suggestion)

    def problem_at(self, start: int, end: int, message: str, expected: str = "", suggestion: str = "") -> Problem:
        """A problem with a stretch of the text, given in characters from 0."""
        line, column = self._place(start)
        source = self._lines.shown(line)
        width = max(1, min(end - start, len(source.rstrip()) - column + 1))
        return Problem(message, self.path, line, column, source, expected, suggestion, width)

    def assemble(
        self, home: Loc, data: Mapping[str, Any], places: Mapping[Loc, Loc], named: Mapping[Loc, Loc] | None = None
    ) -> "Document":
        """A view of this file whose top level is `data`: gathered from `places`, reported at `home` where absent.

        A place may be of a value deep inside `data`: it stands over what its ancestors bring with them. `named` are
        values of this file that are keys in `data`.
        """
        here = self._spot(home, False)
        top = Spot(here.start, here.end, {})
        for path in sorted(places, key=len):
            if path[0] in data:
                key = self._spot(named[path], False) if named and path in named else self._spot(places[path], True)
                top = _overlay(top, path, (key, self._spot(places[path], False)))
        return Document(self.path, self.text, data, top, self._lines)

    @property
    def _starts(self) -> list[int]:
        return self._lines.starts

    @cached_property
    def _lines(self) -> _LineReader:
        return self._known_lines or _LineReader(self.text)

    def _place(self, index: int) -> tuple[int, int]:
        line = bisect_right(self._starts, index)
        column = index - self._starts[line - 1]
        return line, min(column, len(self.line(line))) + 1

    def _spot(self, loc: Loc, key: bool) -> Spot:
        here = named = self.positions
        for part in loc:
            member = here.members.get(part)
            if member is None:
                break
            named, here = member
        return named if key else here


def _overlay(spot: Spot, path: Loc, put: tuple[Spot, Spot]) -> Spot:
    """`spot` with `put`, a key and its value, at `path`; what lies between and stands nowhere else stands there too."""
    if len(path) > 1:
        key, value = spot.members.get(path[0], (put[0], Spot(put[1].start, put[1].end, {})))
        put = (key, _overlay(value, path[1:], put))
    return Spot(spot.start, spot.end, {**spot.members, path[0]: put})
