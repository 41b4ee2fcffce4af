"""Messages of PostgreSQL's protocol (version 3) that a load consists of: made as bytes before it, and read after.

Values and results are in text form throughout, so that no NUL is ever inside of a value.
"""

import struct
from collections.abc import Sequence
from typing import Any

from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import failure

_IDLE, _IN_TRANSACTION = b"I", b"T"
_LENGTH = struct.Struct("!i")
_SKIPPED = frozenset(b"12nDTtNSAsIdcHW")  # steps done, rows and what describes them, and what the server says unasked
_DONE, _ERROR, _READY, _COPY_IN = b"CEZG"


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + _LENGTH.pack(len(body) + 4) + body


SYNC = message(b"S")
_EXECUTE = message(b"E", b"\0\0\0\0\0") + SYNC  # all rows; without a Describe, which nobody would read


def query(text: bytes) -> bytes:
    """A statement without values, parsed by the server each time."""
    return message(b"Q", text + b"\0")


def execute(name: bytes, values: Sequence[bytes | None]) -> bytes:
    """A prepared statement with its values; the empty name is that of the statement parsed last."""
    parts = [b"\0", name, b"\0\0\0", struct.pack("!H", len(values))]
    for value in values:
        parts += (_LENGTH.pack(-1),) if value is None else (_LENGTH.pack(len(value)), value)
    return message(b"B", b"".join((*parts, b"\0\0"))) + _EXECUTE


def parse_and_execute(text: bytes, values: Sequence[bytes | None]) -> bytes:
    return message(b"P", b"\0" + text + b"\0\0\0") + execute(b"", values)


def ends_well(text: bytes, rows: int | None) -> tuple[bytes, ...]:
    """How a good answer of so many rows ends, in a transaction and outside: nothing else can end so.

    A row can't, for there is a NUL behind the tag and none in a value. None where it is not known beforehand.
    """
    verb = text.split(None, 1)[0].upper() if text.strip() else b""
    if rows is None or verb not in (b"SELECT", b"UPDATE", b"DELETE", b"INSERT"):
        return ()
    tag = message(b"C", b"%b %b%d\0" % (verb, b"0 " if verb == b"INSERT" else b"", rows))
    return tuple(tag + message(b"Z", status) for status in (_IDLE, _IN_TRANSACTION))


class Answer:
    """Reads one answer after the other, in whatever pieces they come."""

    def __init__(self) -> None:
        self.rest = b""  # what has come of a message that is not whole
        self._rows = 0
        self.failed: CallFailed | None = None  # what the server said of this answer
        self.broken = False  # what came is not what the protocol says
        self.wants_copy = False  # the server waits for rows
        self.in_transaction = False  # or in one that failed, when it was last ready

    def take(self, data: bytes) -> int | None:
        """The rows, once the answer is whole. Raises CallFailed where the server did, once it is ready again."""
        got = self.rest + data if self.rest else data
        at, size = 0, len(got)
        while size - at >= 5:
            kind, length = got[at], _LENGTH.unpack_from(got, at + 1)[0]
            if length < 4:
                self.broken = True
                raise CallFailed("malformed", f"a message of the kind {chr(kind)!r} that is {length} bytes long")
            end = at + 1 + length
            if end > size:
                break
            if kind == _READY:
                self.rest, self.in_transaction = got[end:], got[at + 5 : end] != _IDLE
                return self._finish()
            self._read(kind, got, at + 5, end)
            at = end
        self.rest = got[at:]
        return None

    def skim(self, data: bytes) -> None:
        """What the server says between two answers."""
        if self.take(data) is not None:
            self.broken = True
            raise CallFailed("malformed", "an answer to nothing")

    def _read(self, kind: int, got: bytes, at: int, end: int) -> None:
        if kind == _DONE:
            self._rows = _count(got[at : end - 1].rpartition(b" ")[2])
        elif kind == _ERROR:
            self.failed = _told(got[at:end])
        elif kind == _COPY_IN:
            self.wants_copy = True
        elif kind not in _SKIPPED:
            self.broken = True
            raise CallFailed("malformed", f"a message of the kind {chr(kind)!r}")

    def _finish(self) -> int:
        rows, failed = self._rows, self.failed
        self._rows, self.failed, self.wants_copy = 0, None, False
        if failed is not None:
            raise failed
        return rows


def refuse_copy(*, extended: bool) -> bytes:
    """Where no rows are to be had; the Sync that was sent with the statement is overheard while it waits for them."""
    return message(b"f", b"the load has no rows for it\0") + (SYNC if extended else b"")


def _count(word: bytes) -> int:
    return int(word) if word.isdigit() else 0


def _told(body: bytes) -> CallFailed:
    fields: dict[int, Any] = {field[0]: field[1:] for field in body.split(b"\0") if field}
    code, words = fields.get(ord("C"), b""), fields.get(ord("M"), b"")
    return failure(code.decode() or None, words.decode(errors="replace"))
