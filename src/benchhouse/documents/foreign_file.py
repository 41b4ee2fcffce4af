"""Files of other tools: their text and JSON, with size limits, and problems with their place."""

import codecs
import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from benchhouse.documents.json_node import JsonNode
from benchhouse.schema.errors import BenchError
from benchhouse.schema.imported import Imported

HEAD_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MOST_WHOLE = 256 << 20  # bytes of a document that is read as a whole; it takes several times that in memory
_MOST_UNPACKED = 64 << 30
_MOST_RATIO = 200  # of unpacked to packed size; JSON lines of one kind reach 40
_FREE_BYTES = 16 << 20  # unpacked before the ratio counts
_MOST_LINE = 1 << 20
_SHOWN = 60  # characters of a wrong value


class ForeignFile:
    """A file, plain or packed by gzip. Every problem with it is a BenchError with its name."""

    def __init__(self, path: Path, mapping: Path | None = None, further: Sequence[Path] = ()) -> None:
        """`further` are other files of the same result; `mapping` is the user's description of a table."""
        self.path, self.mapping = path, mapping
        self._stamps = self._now()
        self.parts: list[ForeignFile] = [self, *(ForeignFile(other) for other in further)]

    @property
    def name(self) -> str:
        """The file's name without `.gz`."""
        return self.path.name.removesuffix(".gz")

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def _now(self) -> tuple[int, int, int]:
        about = self.path.stat()
        return about.st_ino, about.st_size, about.st_mtime_ns

    def changed(self) -> bool:
        """Return whether a file was written to since it was opened, so that digest and data may disagree."""
        return any(part._stamps != part._now() for part in self.parts)

    @cached_property
    def sha256(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def head(self) -> bytes:
        """Return the first bytes, unpacked, without BOM and with Unix line ends; fewer if the file is truncated."""
        with self._reading(), self.open() as file:
            return file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")

    @cached_property
    def packed(self) -> bool:
        with self._reading(), self.path.open("rb") as file:
            return file.read(2) == _GZIP

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the unpacked bytes, limited to the size that a result can have."""
        with self._reading(), self.path.open("rb") as file:
            stream = BufferedReader(cast(RawIOBase, _Unpacked(self, file)), 1 << 18) if self.packed else file
            if stream.peek(2)[:2] in _UTF16:
                self.problem("UTF-16, as PowerShell writes it; make it UTF-8: iconv -f UTF-16 -t UTF-8")
            yield stream

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line with its number from 1, without its end; empty lines are skipped."""
        with self.open() as file:
            number = 0
            while line := file.readline(_MOST_LINE + 1):
                number += 1
                if len(line) > _MOST_LINE:
                    self.problem(f"a line of more than {_MOST_LINE >> 20} MiB", number)
                if not line.endswith(b"\n"):
                    self.problem("the last line has no end: it looks cut off", number)
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if stripped := line.rstrip(b"\r\n"):
                    yield number, stripped

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield each line as text, with its number."""
        for number, line in self.lines():
            try:
                text = line.decode()
            except UnicodeDecodeError:
                self.problem("not UTF-8", number)
            yield number, text

    def number(self, text: str, what: str, line: int) -> float:
        """Return the number in a text; `what` names it in messages."""
        try:
            value = float(text)
        except ValueError:
            self.problem(f"{what[:_SHOWN]}: expected a number, found {text[:_SHOWN]!r}", line)
        if not math.isfinite(value):
            self.problem(f"{what[:_SHOWN]}: not a finite number", line)
        return value

    def json(self) -> JsonNode:
        """Return the whole file as one JSON document."""
        with self.open() as file:
            data = file.read(_MOST_WHOLE + 1)
        if len(data) > _MOST_WHOLE:
            self.problem(f"more than {_MOST_WHOLE >> 20} MiB of one JSON document")
        return JsonNode(self.decode(data), "", self.problem)

    def decode(self, data: bytes, line: int | None = None) -> object:
        """Return the parsed JSON of the file, or of one line of it."""
        if not data.strip():
            self.problem("the file is empty" if line is None else "an empty line", line)
        try:
            return json.loads(data)
        except RecursionError:
            self.problem("nested too deep for a result file", line)
        except json.JSONDecodeError as error:
            cut = "; it looks cut off" if error.pos >= len(error.doc.rstrip()) - 1 else ""
            self.problem(f"not JSON: {error.msg}{cut}", line or error.lineno)
        except (ValueError, UnicodeDecodeError) as error:  # a number with a million digits, or bytes that are not text
            self.problem(f"not JSON: {error}", line)

    def problem(self, message: str, line: int | None = None) -> NoReturn:
        where = f"{self.path}:{line}" if line else str(self.path)
        raise BenchError(f"{where}: {message}", "nothing was imported; is the file whole, and of the tool and version "
                         "that `bench import --help` and docs/how-to/import-results.md name?")  # fmt: skip

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.problem(f"can't be read: {words}")


class _Unpacked(gzip.GzipFile):
    """The unpacked content of a gzip file; a problem is raised if it may be a decompression bomb."""

    def __init__(self, source: ForeignFile, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._source, self._given = source, 0

    def readinto(self, buffer: object) -> int:
        count = super().readinto(buffer)  # type: ignore[arg-type]
        self._given += count
        most = min(_MOST_UNPACKED, self._source.size * _MOST_RATIO + _FREE_BYTES)
        if self._given > most:
            self._source.problem(f"unpacks to more than {_MOST_RATIO} times its size: not a result file")
        return count


@dataclass(frozen=True)
class Importer:
    """The type of entry points in the group `benchhouse.importers`."""

    about: str
    """The tool and the kind of file, on one line."""
    claims: Callable[[bytes, str], bool]
    """Returns whether the importer reads a file, by its first bytes (unpacked) and its name."""
    read: Callable[[ForeignFile], Imported]
    """Reads the file; raises BenchError, by `ForeignFile.problem`, if it differs from the tool's format."""
    parts: Callable[[Path], list[Path]] = lambda path: [path]
    """Returns the files of one result, if a tool writes several; the first is the one that `claims` gets."""
    with_mapping: bool = False
    """Whether the importer needs a mapping file."""
