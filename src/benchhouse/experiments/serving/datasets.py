"""Prompts from a file of JSON lines, CSV, or plain text, read strictly, so that a bad row is found before the run."""

import csv
import hashlib
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchhouse.documents.problems import MAX_RENDERED, Problem, ProblemsError, did_you_mean
from benchhouse.experiments.serving.lengths import MAX_TOKENS, TokenCount, fit_to_tokens
from benchhouse.schema.errors import BenchError
from benchhouse.schema.quantities import show_bytes
from benchhouse.schema.quoting import describe, quote

Format = Literal["jsonl", "csv", "text"]
MAX_FILE_BYTES = 10**9
_FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".txt": "text", ".text": "text",
}  # fmt: skip
_ROLES = ("system", "developer", "user", "assistant", "tool")
_SPEAKERS = {  # names of the speaker in ShareGPT
    "system": "system", "human": "user", "user": "user",
    "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "bard": "assistant", "bing": "assistant",
}  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,12}")
_SOURCES = ("prompt", "messages", "conversations")
_REMOVE = "text; fill it or remove the row"


class Message(NamedTuple):
    """One message of a chat."""

    role: str
    content: str


class PromptRow(NamedTuple):
    """One prompt of a file: `text`, or `messages` if the file has a chat; `output_tokens` if the file has them."""

    text: str | None
    messages: tuple[Message, ...]
    output_tokens: int | None


@dataclass(frozen=True)
class PromptDataset:
    """The prompts of a file in its order, and the digest of the exact bytes that they were read from."""

    rows: list[PromptRow]
    sha256: str


class Cutter:
    """Makes prompts of a given length from those of a file: a short prompt is continued with the following ones.

    Without a tokenizer, a token counts as CHARACTERS characters, as in English prose; the server counts the real
    number.
    """

    CHARACTERS = 4

    def __init__(self, rows: Sequence[PromptRow], count: TokenCount | None) -> None:
        self._rows, self._count = rows, count

    def cut(self, number: int, tokens: int) -> str:
        """Return about `tokens` tokens from the n-th prompt on; exactly that number with a tokenizer."""
        wanted, words, size = tokens * self.CHARACTERS, list[str](), 0
        for text in cycle(map(self._text, chain(range(number, len(self._rows)), range(number)))):
            for word in text.split():
                words.append(word)
                size += len(word) + 1
                if size > wanted and (self._count is None or len(words) > tokens):
                    return " ".join(words) if self._count is None else fit_to_tokens(words, self._count, tokens)
        raise AssertionError("a cycle has no end")

    def _text(self, number: int) -> str:
        row = self._rows[number]
        if row.text is None and len(row.messages) > 1:
            raise BenchError(
                f"prompt {number + 1} of the dataset is a chat of {len(row.messages)} messages, which has no length",
                hint="leave prompt_len and prompt_tokens out, or give a dataset of plain prompts",
            )
        return row.messages[0].content if row.text is None else row.text


def read_dataset(path: Path, file_format: Format | None = None) -> PromptDataset:
    """Read every prompt of a file; the default format is that of the file's extension.

    - JSON lines: one object per line with one of `prompt` (text), `messages` (role and content; a final answer is not
      sent),
    and `conversations` (ShareGPT: its first human turn, and a system turn before it).
    - CSV: a header line with a column `prompt`.
    - Text: one prompt per line.

    JSON and CSV may have `output_tokens`; other content is ignored. Raise a `ProblemsError` with the line of each fault
    if
    anything is wrong.
    """
    reader = _PromptReader(path, file_format or _format_of(path))
    _check_file(path)
    with path.open("rb") as file:
        rows = list(reader.rows(file))
    if reader.problems:
        raise ProblemsError(reader.problems)
    if not rows:
        raise BenchError(f"{path}: no prompts in this file", hint="put at least one prompt into it")
    return PromptDataset(rows, reader.hash.hexdigest())


def _format_of(path: Path) -> Format:
    if file_format := _FORMATS.get(path.suffix.lower()):
        return file_format
    hint = "rename it to .jsonl, .csv or .txt, or say format: jsonl, csv or text"
    if path.suffix.lower() == ".json":
        lines = path.with_suffix(".jsonl")
        hint = f"JSON prompts are one object a line; from one big list: jq -c '.[]' {path} > {lines}"
    raise BenchError(f"{path}: the ending {quote(path.suffix)} does not tell the format of the prompts", hint=hint)


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise BenchError(f"the file of prompts {path} {'is not a file' if path.exists() else 'does not exist'}")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise BenchError(
            f"{path} has {show_bytes(size)}; at most {show_bytes(MAX_FILE_BYTES)} of prompts are kept in memory",
            hint=f"take a part of it: head -n 10000 {path} > part{path.suffix}",
        )


@dataclass
class _PromptReader:
    """Reads the lines of one file and records what is wrong with them."""

    path: Path
    format: Format
    problems: list[Problem] = field(default_factory=list)
    hash: Any = field(default_factory=hashlib.sha256)
    at: int = 0  # line that is being read, from 1

    def rows(self, lines: Iterable[bytes]) -> Iterator[PromptRow]:
        texts = self._decoded(lines)
        return self._csv(texts) if self.format == "csv" else self._by_line(texts)

    def _complain(self, message: str, expected: str, line: int | None = None, column: int | None = None) -> None:
        self.problems.append(Problem(message, str(self.path), line or self.at, column, "", expected))

    def _decoded(self, lines: Iterable[bytes]) -> Iterator[str]:
        """Yield the lines as text; skip and record one that is not UTF-8. Stop when there are enough problems."""
        for self.at, line in enumerate(lines, 1):
            self.hash.update(line)
            if self.at == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                self._complain("the file is UTF-16", f"UTF-8; e.g. iconv -f UTF-16 -t UTF-8 {self.path}")
                return
            try:
                yield line.decode("utf-8-sig" if self.at == 1 else "utf-8")
            except UnicodeDecodeError as error:
                before, byte = error.object[: error.start].decode(), error.object[error.start]
                encoding = f"UTF-8; e.g. iconv -f ISO-8859-1 -t UTF-8 {self.path}"
                self._complain(f"not UTF-8: byte {byte:#04x}", encoding, column=len(before) + 1)
                if self.format == "csv":  # without this line, the following ones cannot be separated
                    return
            if len(self.problems) >= MAX_RENDERED:
                return

    def _by_line(self, texts: Iterator[str]) -> Iterator[PromptRow]:
        for text in texts:
            line = text.rstrip("\r\n")
            if not line.strip():
                self._complain("an empty line, so an empty prompt", "a prompt a line; remove the line")
                continue
            row = self._from_json(line) if self.format == "jsonl" else PromptRow(line, (), None)
            if row:
                yield row

    def _from_json(self, line: str) -> PromptRow | None:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
            message, column = getattr(error, "msg", error), getattr(error, "colno", None)
            self._complain(f"broken JSON: {message}", "one whole JSON object a line", column=column)
            return None
        if not isinstance(data, dict):
            self._complain(f"a row is an object, found {describe(data)}", 'an object such as {"prompt": "..."}')
            return None
        given = [key for key in _SOURCES if key in data]
        if len(given) != 1:
            keys = f"both {given[0]} and {given[1]}" if given else f"no prompt (keys: {quote(', '.join(data))})"
            self._complain(f"a row has one of {', '.join(_SOURCES)}; found {keys}", f"one of {', '.join(_SOURCES)}")
            return None
        before = len(self.problems)
        output_tokens = self._output_tokens(data.get("output_tokens"))
        text = self._filled(data["prompt"], "prompt") if given == ["prompt"] else None
        messages = self._messages(data[given[0]], given[0]) if given != ["prompt"] else ()
        return PromptRow(text, messages, output_tokens) if len(self.problems) == before else None

    def _messages(self, turns: Any, key: str) -> tuple[Message, ...]:
        """Return the messages to send, without the recorded answer that follows them."""
        if not isinstance(turns, list) or not turns:
            given = "an empty list" if turns == [] else describe(turns)
            self._complain(f"{key} is a list of turns, found {given}", "at least one turn; remove the row")
            return ()
        sharegpt = key == "conversations"
        messages: list[Message] = []
        for number, turn in enumerate(turns):
            message = self._message(turn, f"{key}[{number}]", sharegpt)
            if message is None:
                return ()
            if sharegpt and message.role == "assistant":
                continue
            messages.append(message)
            if sharegpt and message.role == "user":
                return tuple(messages)
        while messages and messages[-1].role == "assistant":
            messages.pop()
        if not any(message.role == "user" for message in messages):
            self._complain(f"{key} has nothing that a person said", "a turn of the user; remove the row")
        return tuple(messages)

    def _message(self, turn: Any, where: str, sharegpt: bool) -> Message | None:
        who, what = ("from", "value") if sharegpt else ("role", "content")
        if not isinstance(turn, dict):
            self._complain(f"{where} is a mapping of {who} and {what}, found {describe(turn)}", f"{who} and {what}")
            return None
        roles = _SPEAKERS if sharegpt else dict.fromkeys(_ROLES)
        role = turn.get(who)
        if not isinstance(role, str) or role not in roles:
            self._complain(f"{where}.{who} is {describe(role)}", f"one of {', '.join(roles)}")
            return None
        content = self._filled(turn.get(what), f"{where}.{what}")
        return None if content is None else Message(_SPEAKERS[role] if sharegpt else role, content)

    def _csv(self, texts: Iterator[str]) -> Iterator[PromptRow]:
        limit = csv.field_size_limit(MAX_FILE_BYTES)  # the library's own limit is below a prompt of 1 MB
        try:
            table = csv.reader(texts, strict=True)
            header = next(table, [])
            if header and self._has_prompt(header):
                yield from self._table(table, header)
        except csv.Error as error:
            if not self.problems:  # otherwise the table was left in the middle
                rules = "commas between cells, text in double quotes, each inside doubled"
                self._complain(f"broken CSV: {error}", rules)
        finally:
            csv.field_size_limit(limit)

    def _has_prompt(self, header: list[str]) -> bool:
        if header.count("prompt") == 1:
            return True
        meant = did_you_mean("prompt", header)
        where = "twice" if "prompt" in header else f"not among {quote(', '.join(header))}"
        expected = f"a header line with one 'prompt'{f', not {meant!r}' if meant else ''}"
        self._complain(f"column 'prompt' is {where}", expected)
        return False

    def _table(self, table: Any, header: list[str]) -> Iterator[PromptRow]:
        begins = table.line_num + 1
        for cells in table:
            if len(cells) != len(header):
                message = f"{len(cells)} columns where the header has {len(header)}"
                self._complain(message, "one cell a column; put text with commas into double quotes", begins)
            else:
                row = dict(zip(header, cells, strict=True))
                before = len(self.problems)
                text = self._filled(row["prompt"], "prompt", begins)
                cell = row.get("output_tokens", "").strip()
                output_tokens = self._output_tokens(int(cell) if _NUMBER.fullmatch(cell) else cell or None, begins)
                if len(self.problems) == before:
                    yield PromptRow(text, (), output_tokens)
            begins = table.line_num + 1

    def _filled(self, value: Any, where: str, line: int | None = None) -> str | None:
        if not isinstance(value, str):
            self._complain(f"{where} is text, found {describe(value)}", _REMOVE, line)
        elif not value.strip():
            self._complain(f"{where} is empty", _REMOVE, line)
        elif re.search("[\ud800-\udfff]", value):  # escapes of JSON can spell text that UTF-8 cannot
            self._complain(f"{where} has half a surrogate pair, which is no character", "whole characters", line)
        else:
            return value
        return None

    def _output_tokens(self, value: Any, line: int | None = None) -> int | None:
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS:
            return value
        self._complain(f"output_tokens is {describe(value)}", f"a whole number, 1 to {MAX_TOKENS:,}", line)
        return None
