"""A parsed file: its data, and the position of every key and value in its text."""

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
    """The position of a value in the text, in characters from 0, and the (key, value) spots of its members."""

    start: int
    end: int
    members: Mapping[str | int, tuple["Spot", "Spot"]]


class _LineReader:
    """The lines of a text, each extracted and searched for secrets once: a line of JSON may have a megabyte and many
    problems.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[int, str] = {}
        self._shown: dict[int, str] = {}

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line, by the line breaks of editors; YAML itself would also break at U+2028."""
        ends = (match.end() for match in re.finditer(r"\r\n?|\n", self._text))
        return [0, *(end for end in ends if end < len(self._text))]

    def line(self, number: int) -> str:
        """Return a line, counted from 1, without its line break; empty past the end."""
        if not 1 <= number <= len(self.starts):
            return ""
        if number not in self._found:
            end = self.starts[number] if number < len(self.starts) else len(self._text)
            self._found[number] = self._text[self.starts[number - 1] : end].rstrip("\r\n")
        return self._found[number]

    def shown(self, number: int) -> str:
        """Return a line for messages; empty if it holds a secret."""
        if number not in self._shown:
            line = self.line(number)
            self._shown[number] = "" if shows_secret(line) else line
        return self._shown[number]


@dataclass(frozen=True)
class Document:
    """A parsed file: its text without byte order mark, its data, and the positions of all values.

    The position of a value from an alias or a merge key is that of its anchor.
    """

    path: str
    text: str = field(repr=False)
    data: Any
    positions: Spot = field(repr=False)
    _known_lines: _LineReader | None = field(default=None, repr=False, compare=False)

    def position(self, loc: Loc, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value (or its key) at `loc`, or of its nearest existing ancestor."""
        return self._place(self._spot(loc, key).start)

    def value(self, loc: Loc) -> Any:
        """Return the data at `loc`; None if there is none."""
        data = self.data
        for part in loc:
            try:
                data = data[part]
            except (KeyError, IndexError, TypeError):
                return None
        return data

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its line break; empty past the end."""
        return self._lines.line(number)

    def written(self, loc: Loc) -> str:
        """Return the value at `loc` as the user spelled it, shortened if it is long."""
        spot = self._spot(loc, False)
        return shorten(self.text[spot.start : spot.end].strip())

    def problem(self, loc: Loc, message: str, expected: str = "", suggestion: str = "", key: bool = False) -> Problem:
        """Return a problem with the value (or the key) at `loc`."""
        spot = self._spot(loc, key)
        return self.problem_at(spot.start, spot.end, message, expected, suggestion)

    def problem_at(self, start: int, end: int, message: str, expected: str = "", suggestion: str = "") -> Problem:
        """Return a problem with a range of the text, given in characters from 0."""
        line, column = self._place(start)
        source = self._lines.shown(line)
        width = max(1, min(end - start, len(source.rstrip()) - column + 1))
        return Problem(message, self.path, line, column, source, expected, suggestion, width)

    def assemble(
        self, home: Loc, data: Mapping[str, Any], places: Mapping[Loc, Loc], named: Mapping[Loc, Loc] | None = None
    ) -> "Document":
        """Return a view of this file whose top level is `data`, with positions from `places`, or `home` for missing
        ones.

        The position of a nested value takes precedence over those that its ancestors imply. `named` are values of this
        file that are keys in `data`.
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
    """Return `spot` with `put`, a key and its value, at `path`; missing levels in between get the same position."""
    if len(path) > 1:
        key, value = spot.members.get(path[0], (put[0], Spot(put[1].start, put[1].end, {})))
        put = (key, _overlay(value, path[1:], put))
    return Spot(spot.start, spot.end, {**spot.members, path[0]: put})
