"""Read TOML into the same kind of document as YAML: plain data with the line and column of every key and value.

Python's own reader gives the values and finds syntax errors; the scan below finds the positions.
"""

import re
import tomllib
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from benchhouse.documents.document import Document, Spot
from benchhouse.documents.problems import ProblemsError
from benchhouse.documents.text_file import read_text, too_large
from benchhouse.schema.quoting import quote

MAX_BYTES = 2**20
MAX_DEPTH = 64
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TWICE = (
    "Cannot overwrite a value",
    "Cannot declare",
    "Cannot mutate",
    "Cannot redefine",
    "Duplicate inline table key",
)
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_KEY = re.compile(r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
_TEXT = re.compile(
    r'''"{3}(?:[^\\]|\\.)*?"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)  # fmt: skip
_PLAIN = re.compile(r"\d{4}-\d\d-\d\d [\d:.]+(?:Z|[+-][\d:]+)?|[^\s,\]}#]+")


def load_toml(path: Path) -> Document:
    """Read a file. Raise BenchError if it cannot be read; otherwise like `parse_toml`."""
    return parse_toml(read_text(path, "TOML"), str(path))


def parse_toml(text: str, path: str) -> Document:
    """Read text; `path` names it in problems. Raise ProblemsError with the first mistake, because tomllib reports only
    one.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_BYTES:
        raise too_large(len(text), path, "TOML")
    draft = Document(path, text, None, Spot(0, 0, {}))
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _fault(str(error), draft) from None
    except RecursionError:
        raise _deep(draft) from None
    if _height(data) > MAX_DEPTH:
        raise _deep(draft)
    return Document(path, text, _plain(data), _Scan(text).read())


def _deep(draft: Document) -> ProblemsError:
    return ProblemsError([draft.problem_at(0, 1, f"nested deeper than {MAX_DEPTH} levels", "a flatter file")])


def _height(value: Any) -> int:
    """Return the depth of tables and lists, counted without recursion."""
    level, height = [value], 0
    while level := [item for value in level for item in _items(value)]:
        height += 1
    return height


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _plain(value: Any) -> Any:
    """Return the data with dates and times as text, as from the YAML reader."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def _fault(message: str, draft: Document) -> ProblemsError:
    """Return the reader's error at its place; for a duplicate key, with both places."""
    place = _PLACE.search(message)
    line, column = (int(place[1]), int(place[2])) if place and place[1] else (0, 0)
    before = sum(len(text) + 1 for text in draft.text.split("\n")[: line - 1])
    end = before + column - 1 if line else len(draft.text)
    said = message[: place.start()] if place else message
    if not said.startswith(_TWICE):
        return ProblemsError([draft.problem_at(end, end + 1, f"not valid TOML: {said[:1].lower()}{said[1:]}")])
    scan = _Scan(draft.text, end)
    scan.read()
    if scan.twice is None:
        return ProblemsError([draft.problem_at(max(0, end - 1), end, f"not valid TOML: {said[:1].lower()}{said[1:]}")])
    name, spot, other = scan.twice
    first = draft.text.count("\n", 0, other.start) + 1
    problem = draft.problem_at(spot.start, spot.end, f"{quote(name)} is given twice, first in line {first}", "one")
    return ProblemsError([problem])


class _Scan:
    """Finds the positions of keys and values, in text that is valid TOML, or valid up to `end`.

    `twice` is the last duplicate key: its name, its position, and that of the first.
    """

    def __init__(self, text: str, end: int | None = None) -> None:
        self.text, self.end, self.at = text, len(text) if end is None else end, 0
        self.twice: tuple[str, Spot, Spot] | None = None
        self.lists: dict[int, int] = {}  # length of each array of tables, by the identity of its members

    def read(self) -> Spot:
        root = here = Spot(0, len(self.text), {})
        while self._skip():
            if self.text.startswith("[[", self.at):
                here = self._header(root, 2)
            elif self.text[self.at] == "[":
                here = self._header(root, 1)
            else:
                self._pair(here)
        return root

    def _skip(self) -> bool:
        """Skip blanks and comments; return whether anything follows."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at < self.end

    def _keys(self) -> list[tuple[str, Spot]]:
        keys = []
        while match := _KEY.match(self.text, self.at):
            raw = match[1]
            name = str(next(iter(tomllib.loads(f"{raw} = 0")))) if raw[0] in "\"'" else raw
            keys.append((name, Spot(match.start(1), match.end(1), {})))
            self.at = match.end()
            if not self.text.startswith(".", self.at):
                break
            self.at += 1
        return keys

    def _header(self, root: Spot, brackets: int) -> Spot:
        start = self.at
        self.at += brackets
        *outer, (name, key) = self._keys()
        self.at += brackets
        holder = self._inside(root, outer)
        if brackets == 1:
            self._note(name, key, holder)
            old = holder.members.get(name)
            table = Spot(start, self.at, old[1].members if old else {})
            self._put(holder, name, key, table)
            return table
        if name not in holder.members:
            self._put(holder, name, key, Spot(start, self.at, {}))
        members = holder.members[name][1].members
        number = self.lists.setdefault(id(members), 0)
        self.lists[id(members)] += 1
        table = Spot(start, self.at, {})
        members[number] = (key, table)  # type: ignore[index]
        return table

    def _inside(self, spot: Spot, keys: list[tuple[str, Spot]]) -> Spot:
        """Return the table that dotted keys lead to; for an array of tables, its last one."""
        for name, key in keys:
            if name not in spot.members:
                self._put(spot, name, key, Spot(key.start, key.end, {}))
            spot = spot.members[name][1]
            if count := self.lists.get(id(spot.members)):
                spot = spot.members[count - 1][1]
        return spot

    def _pair(self, table: Spot) -> None:
        keys = self._keys()
        if not keys:
            self.at = self.end
            return
        self.at += 1  # the equals sign
        self._skip()
        *outer, (name, key) = keys
        holder = self._inside(table, outer)
        self._note(name, key, holder)
        self._put(holder, name, key, self._value())

    def _note(self, name: str, key: Spot, holder: Spot) -> None:
        if name in holder.members:
            self.twice = name, key, holder.members[name][0]

    @staticmethod
    def _put(holder: Spot, name: str | int, key: Spot, value: Spot) -> None:
        holder.members[name] = (key, value)  # type: ignore[index]  # filled here, read-only to all others

    def _value(self) -> Spot:
        start, members = self.at, dict[str | int, tuple[Spot, Spot]]()
        opened = self.text[start : start + 1]
        value = Spot(start, 0, members)
        if opened in ("[", "{"):
            self.at += 1
            while self._skip() and self.text[self.at] not in "]}":
                if self.text[self.at] == ",":
                    self.at += 1
                elif opened == "[":
                    item = self._value()
                    members[len(members)] = (item, item)
                else:
                    self._pair(value)
            self.at += 1
        else:
            match = _TEXT.match(self.text, start) or _PLAIN.match(self.text, start)
            self.at = match.end() if match else self.end
        return Spot(start, self.at, members)
