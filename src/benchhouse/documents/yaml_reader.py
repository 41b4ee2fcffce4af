"""Read YAML into plain data with the line and column of every key and value.

Scalars follow YAML 1.2 rather than YAML 1.1: only `true` and `false` are booleans; `yes`, `on`, `1:30`, `2024-01-01`,
`1_000` and `014` stay text. Ambiguous content is refused, with its place.
"""

import math
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml import events

from benchhouse.documents.document import Document, Spot
from benchhouse.documents.problems import Problem, ProblemsError, did_you_mean
from benchhouse.documents.text_file import MAX_BYTES, read_text, too_large
from benchhouse.schema.cancellation import stop_if_cancelled
from benchhouse.schema.quoting import describe, quote, shorten

MAX_DEPTH = 64
MAX_EXPANSION = 100_000  # nodes that aliases may add to those written out
MAX_DIGITS = 250  # a longer whole number overflows a float, and from 4,300 digits int() itself refuses
MAX_PROBLEMS = 100


def load_yaml(path: Path) -> Document:
    """Read a file that holds one mapping. Raise BenchError if it cannot be read; otherwise like `parse_yaml`."""
    return parse_yaml(read_text(path, "YAML"), str(path))


def parse_yaml(text: str, path: str) -> Document:
    """Read text that holds one mapping; `path` names it in problems. Raise ProblemsError with all problems."""
    mark_bytes = 3 if text.startswith("\ufeff") else 0
    text = text.removeprefix("\ufeff")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise too_large(size, path, "YAML")
    draft = Document(path, text, None, Spot(0, 0, _NOTHING))
    _refuse_control_characters(draft, mark_bytes)
    reader = _YamlBuilder(draft)
    built = reader.read()
    if reader.problems:
        raise ProblemsError(reader.problems)
    return Document(path, text, built.value, built.spot)


# ---- bytes and characters -------------------------------------------------------------------------------------

_NOTHING: Mapping[str | int, tuple[Spot, Spot]] = {}
_FORBIDDEN_ASCII = re.compile("[^\t\n\r\x20-\x7e]")


@cache
def _forbidden() -> re.Pattern[str]:
    """Return the pattern for non-ASCII text. Compiling it takes as long as reading a typical scenario."""
    return re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def _refuse_control_characters(draft: Document, skipped_bytes: int) -> None:
    problems = []
    for match in (_FORBIDDEN_ASCII if draft.text.isascii() else _forbidden()).finditer(draft.text):
        char, at = match[0], match.start()
        offset = skipped_bytes + len(draft.text[:at].encode("utf-8", "surrogatepass"))
        messages = {
            "\0": f"NUL character at byte offset {offset}: this looks like a binary file",
            "\ufeff": f"byte order mark (U+FEFF) at byte offset {offset}, inside the file",
        }
        message = messages.get(char, f"control character U+{ord(char):04X} at byte offset {offset}")
        expected = "printable text; in double quotes a control character can be written as \\x1b"
        problems.append(draft.problem_at(at, at + 1, message, expected))
        if len(problems) == 10:
            break
    if problems:
        raise ProblemsError(problems)


# ---- scalars --------------------------------------------------------------------------------------------------

_CONSTANTS = {"": None, "~": None} | {
    spelling: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelling in (word, word.capitalize(), word.upper())
}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_STANDARD = "tag:yaml.org,2002:"
_KINDS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}


class ScalarRefused(Exception):  # noqa: N818 - a plain scalar that this format does not allow
    """A scalar that is not accepted, with the message and the expected value."""


def resolve_plain(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ScalarRefused(
                f"a whole number of {len(text):,} digits", f"at most {MAX_DIGITS} digits; quote it as text"
            )
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ScalarRefused(f"the number {shorten(text)} is too large", "a finite number; if it is text, quote it")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ScalarRefused(f"{text} is not a finite number", "a finite number; if it is text, quote it")
    return text


# ---- events to data -------------------------------------------------------------------------------------------


class _Built(NamedTuple):
    value: Any
    spot: Spot
    nodes: int = 1  # with aliases written out
    height: int = 0  # levels of mappings and lists
    sound: bool = True  # False: already reported


def _end(event: Any) -> int:
    return int(event.end_mark.index)


def _parse(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (ValueError, OverflowError) as error:  # the Python parser, on an escape past the last character
        raise yaml.YAMLError(str(error)) from None


class _Stop(Exception):  # noqa: N818 - a signal within this module, never seen outside
    """Signals that reading cannot continue."""


class _YamlBuilder:
    """Builds data from the parser's events, so that depth is known before anything recurses."""

    def __init__(self, draft: Document) -> None:
        self.draft = draft
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Built | None] = {}  # None: still being read
        self.expansion = 0
        self.events = _parse(draft.text)

    def read(self) -> _Built:
        """Return the one mapping in the text; check `problems` before using it."""
        built = _Built(None, Spot(0, 0, _NOTHING))
        try:
            built = self._stream()
        except _Stop:
            pass
        except yaml.MarkedYAMLError as error:
            self.problems.append(_syntax_problem(error, self.draft))
        except yaml.YAMLError as error:
            self.problems.append(self.draft.problem_at(0, 1, f"not valid YAML: {error}"))
        return built

    def _stream(self) -> _Built:
        next(self.events)
        if isinstance(next(self.events), events.StreamEndEvent):
            what = "the file holds only comments" if self.draft.text.strip() else "the file is empty"
            self._stop(0, 1, what, "a mapping (key: value)")
        first = next(self.events)
        built = self._node(first, 0)
        next(self.events)
        after = next(self.events)
        at = after.start_mark.index
        if not isinstance(built.value, dict) and built.sound:
            what = f"the top level of the file is {describe(built.value)}"
            if built.value is None and built.spot.start == built.spot.end:
                what = "the file is empty"
            self._report(built.spot.start, built.spot.end, what, "a mapping (key: value)")
        if isinstance(after, events.DocumentStartEvent):
            self._stop(at, at + 3, "a second YAML document begins here", "one document in a file; split the file")
        return built

    def _node(self, event: Any, depth: int) -> _Built:
        if isinstance(event, events.AliasEvent):
            return self._alias(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, events.ScalarEvent):
            built = self._scalar(event)
        else:
            start = event.start_mark.index
            if depth >= MAX_DEPTH:
                self._stop(start, start + 1, f"nested deeper than {MAX_DEPTH} levels", "a flatter file")
            is_mapping = isinstance(event, events.MappingStartEvent)
            if event.tag not in (None, "!", _STANDARD + ("map" if is_mapping else "seq")):
                self._refuse_tag(event)
            built = self._mapping(start, depth) if is_mapping else self._sequence(start, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = built
        return built

    def _scalar(self, event: Any) -> _Built:
        spot = Spot(event.start_mark.index, event.end_mark.index, _NOTHING)
        text, tag = event.value, event.tag
        kind = (tag or "").removeprefix(_STANDARD)
        if tag == "!" or kind == "str" or (tag is None and not event.implicit[0]):
            return _Built(text, spot)
        if tag and (kind == tag or kind not in _KINDS):
            self._refuse_tag(event)
            return _Built(None, spot, sound=False)
        try:
            value = resolve_plain(text)
            if tag and (not isinstance(value, _KINDS[kind]) or (kind != "bool" and isinstance(value, bool))):
                raise ScalarRefused(f"{quote(text)} does not fit its tag !!{kind}", "a fitting value, or no tag")
        except ScalarRefused as refused:
            self._report(spot.start, spot.end, *refused.args)
            return _Built(None, spot, sound=False)
        return _Built(float(value) if kind == "float" else value, spot)

    def _sequence(self, start: int, depth: int) -> _Built:
        value: list[Any] = []
        members: dict[str | int, tuple[Spot, Spot]] = {}
        nodes, height = 1, 0
        while not isinstance(event := next(self.events), events.SequenceEndEvent):
            stop_if_cancelled()
            item = self._node(event, depth + 1)
            members[len(value)] = (item.spot, item.spot)
            value.append(item.value)
            nodes, height = nodes + item.nodes, max(height, item.height)
        return _Built(value, Spot(start, _end(event), members), nodes, height + 1)

    def _mapping(self, start: int, depth: int) -> _Built:
        value: dict[str, Any] = {}
        members: dict[str | int, tuple[Spot, Spot]] = {}
        merged: tuple[Spot, _Built] | None = None
        nodes, height = 1, 0
        while not isinstance(event := next(self.events), events.MappingEndEvent):
            stop_if_cancelled()
            is_merge = isinstance(event, events.ScalarEvent) and event.value == "<<" and event.implicit[0]
            key = self._node(event, depth + 1)
            item = self._node(next(self.events), depth + 1)
            nodes, height = nodes + key.nodes + item.nodes, max(height, item.height)
            if not isinstance(key.value, str):
                self._refuse_key(key)
                continue
            earlier = merged if is_merge else members.get(key.value)
            if earlier:
                line, _ = self.draft._place(earlier[0].start)
                self._report(key.spot.start, key.spot.end, f"duplicate key {quote(key.value)}, first on line {line}")
            elif is_merge:
                merged = (key.spot, item)
            else:
                value[key.value] = item.value
                members[key.value] = (key.spot, item.spot)
        if merged:
            self._merge(merged[1], value, members)
        return _Built(value, Spot(start, _end(event), members), nodes, height + 1)

    def _merge(self, source: _Built, value: dict[str, Any], members: dict[str | int, tuple[Spot, Spot]]) -> None:
        """Add the mappings of `<<` without replacing the mapping's own keys; of several sources, the first wins."""
        is_mapping = isinstance(source.value, dict)
        parts = [source.value] if is_mapping else source.value
        spots = [source.spot] if is_mapping else [spot for _, spot in source.spot.members.values()]
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            if source.sound:
                expected = "a mapping or a list of mappings, such as *defaults"
                self._report(source.spot.start, source.spot.end, "'<<' can't merge this", expected)
            return
        for part, spot in zip(parts, spots, strict=True):
            for name, item in part.items():
                if name not in value:
                    value[name] = item
                    members[name] = spot.members[name]

    def _alias(self, event: Any, depth: int) -> _Built:
        start, end = event.start_mark.index, event.end_mark.index
        lost = _Built(None, Spot(start, end, _NOTHING), sound=False)
        name = event.anchor
        if name not in self.anchors:
            meant = did_you_mean(name, self.anchors) or ""
            self._report(start, end, f"unknown alias *{name}", "an anchor defined above", meant)
            return lost
        anchored = self.anchors[name]
        if anchored is None:
            self._report(start, end, f"alias *{name} stands inside its own anchor &{name}", "no recursion")
            return lost
        if depth + anchored.height > MAX_DEPTH:
            self._report(start, end, f"alias *{name} nests deeper than {MAX_DEPTH} levels", "a flatter file")
            return lost
        self.expansion += anchored.nodes - 1
        if self.expansion > MAX_EXPANSION:
            self._stop(start, end, f"aliases expand to more than {MAX_EXPANSION:,} values", "fewer or smaller aliases")
        return anchored._replace(value=deepcopy(anchored.value))  # changing one copy does not change the others

    def _refuse_key(self, key: _Built) -> None:
        if not key.sound:
            return
        start, end = key.spot.start, key.spot.end
        if isinstance(key.value, dict | list):
            expected = 'a text key; a template needs quotes: "{{ name }}"'
            self._report(start, end, f"{describe(key.value)} is used as a key", expected)
        elif start == end:
            self._report(start, end, "the key before ':' is missing", "a text key")
        else:
            written = shorten(self.draft.text[start:end])
            expected = f'a text key; put it in quotes: "{written}"'
            kind = "null" if key.value is None else "a boolean" if isinstance(key.value, bool) else "a number"
            self._report(start, end, f"the key {written} is read as {kind}, not as text", expected)

    def _refuse_tag(self, event: Any) -> None:
        shown = event.tag.replace(_STANDARD, "!!", 1) if event.tag.startswith(_STANDARD) else event.tag
        start = event.start_mark.index
        self._report(start, start + len(shown), f"the tag {shorten(shown)} is not allowed", "plain values without tags")

    def _report(self, start: int, end: int, message: str, expected: str = "", suggestion: str = "") -> None:
        self.problems.append(self.draft.problem_at(start, end, message, expected, suggestion))
        if len(self.problems) >= MAX_PROBLEMS:
            raise _Stop

    def _stop(self, start: int, end: int, message: str, expected: str) -> None:
        self._report(start, end, message, expected)
        raise _Stop


# ---- syntax errors --------------------------------------------------------------------------------------------

_ADVICE = (
    ("mapping values are not allowed", "one 'key: value' a line; a value with ': ' in it needs quotes"),
    ("could not find expected ':'", "a ':' after the key"),
    ("did not find expected key", "lines of one mapping that begin in the same column"),
    ("did not find expected '-'", "'- ' before every item of the list"),
    ("unknown escape character", "in double quotes a backslash is written \\\\; single quotes take it as it is"),
    ("cannot start any token", "quotes around a value that begins with a special character"),
    ("undefined tag handle", "plain values without tags"),
    ("did not find expected <document start>", "one mapping and nothing after it"),
)


def _syntax_problem(error: yaml.MarkedYAMLError, draft: Document) -> Problem:
    reason = error.problem or "it can't be read"
    mark = error.problem_mark or error.context_mark
    index = mark.index if mark else 0
    number, _ = draft._place(index)
    indent = re.match(r"[ \t]*", draft.line(number))
    if indent and "\t" in indent[0] and index <= draft._starts[number - 1] + indent.end():
        at = draft._starts[number - 1] + indent[0].index("\t")
        return draft.problem_at(at, at + 1, "a tab is used for indentation", "spaces; YAML allows no tabs there")
    context = error.context_mark
    if context and (reason.startswith("did not find expected ','") or "end of stream" in reason):
        opened, closes = draft.text[context.index : context.index + 1], {"[": "]", "{": "}"}
        message = f"not valid YAML: {f'the {opened} opened here is not closed' if opened else reason}"
        expected = f"',' or '{closes[opened]}' by line {number}" if opened in closes else f"a closing {opened}"
        return draft.problem_at(context.index, context.index + 1, message, expected)
    expected = next((advice for part, advice in _ADVICE if part in reason), "")
    return draft.problem_at(index, index + 1, f"not valid YAML: {reason}", expected)
