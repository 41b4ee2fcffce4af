"""Framing of an HTTP/1.1 answer: where its head ends, what is its body, and where it is complete.

Bytes may be split anywhere. Only the framing determines where an answer ends, even if its bytes look like an end.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from benchhouse.load.answers import whole_chunks
from benchhouse.load.answers_python import MARK, READ
from benchhouse.load.protocols.calls import BodySink

_START = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: |\r\n|$)")
_FIELD = re.compile(
    rb"\r\n(transfer-encoding|content-length|content-type|connection)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE
)
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_HEAD_LIMIT = 1 << 18
_BODY_LIMIT = 128 << 20  # of the part kept in memory
_EVENT_LIMIT = 8 << 20  # of a line in an event stream
_LINE_LIMIT = 1 << 16
_LAST = b"0\r\n\r\n"
_SIZE, _LINE_END, _TRAILERS = 0, -1, -2  # the next part of a chunked body, if it is not content


class Malformed(Exception):  # noqa: N818 - it never leaves the connection
    """The answer is not HTTP/1.1; the message contains the reason."""


class Head(NamedTuple):
    """The framing that the head of an answer declares."""

    status: int
    chunked: bool
    length: int | None  # None: chunked, or until the connection ends
    closing: bool  # whether the server closes the connection afterwards
    events: bool  # whether the body is an event stream, line by line


class IncomingResponse:
    """One answer while it arrives. `feed` takes its bytes; afterwards `status`, `head`, and `body` can be read.

    With a sink, the body of a good answer goes there and is not kept; the body of an error is always kept.
    """

    __slots__ = (
        "_chunked",
        "_events",
        "_line",
        "_pending",
        "body",
        "closing",
        "head",
        "left",
        "sink",
        "status",
        "sunk",
    )

    def __init__(self, sink: BodySink | None = None) -> None:
        self.sink = sink
        self.sunk = 0  # bytes that went to the sink
        self.status = 0  # 0 until the head is complete
        self.head = b""
        self.body = bytearray()
        self.closing = False  # whether the connection can't be used again
        self._pending = b""  # the start of a head or line that is not complete
        self._chunked = self._events = False
        self._line = 0  # start of the last line of the body that was checked
        self.left: int | None = 0  # missing bytes of the body or chunk; None until the connection ends

    @property
    def begun(self) -> bool:
        """Whether any part of the answer has arrived."""
        return bool(self.status or self._pending)

    @property
    def ends_with_connection(self) -> bool:
        return self.status > 0 and self.left is None

    @property
    def only_sinks(self) -> bool:
        """Whether all further bytes go into the sink unchanged, so that any buffer may receive them."""
        return self.sink is not None and self.status > 0 and not self._chunked

    @property
    def missing(self) -> int | None:
        """Bytes still to come, if the head declares them; None if the rest marks its own end."""
        return None if self._chunked else self.left

    @property
    def size(self) -> int:
        """Size of the body received so far."""
        return self.sunk or len(self.body)

    def feed(self, data: bytes) -> bool:
        """Take the next bytes. Return whether the answer is complete. Raises Malformed."""
        if not self.status:
            self._pending += data
            if not self._parse_head():
                return False
            data, self._pending = self._pending, b""
        if self.sink is not None:
            if self.status < 300:
                return self.feed_sink(data)
            self.sink = None
        if self._chunked:
            return self._dechunk(data)
        self.body += data
        if self.left is None:
            return False
        self.left -= len(data)
        if self.left < 0:  # more than announced: the rest can't be distinguished from the next answer
            del self.body[self.left :]
            self.closing = True
        return self.left <= 0

    def feed_reads(self, data: bytes, reads: bytes) -> tuple[bool, bytes]:
        """Do the same as `feed` for several reads, given by the marks of a poller, but whole chunks all at once. Return
        whether the answer is complete, and the marks up to the read that completed it."""
        at, marks, complete = 0, b"", False
        if self._chunked and self.left == _SIZE and self.sink is None and not self._pending:
            at, content, marks = whole_chunks(data, reads, len(self.body))
            self.body += content
        for end, stamp, floor, _ in READ.iter_unpack(reads[len(marks) // MARK.size * READ.size :]):
            if complete:  # the rest can't be distinguished from the next answer
                self.closing = True
                break
            complete = self.feed(data[at:end])
            at = end
            marks += MARK.pack(self.size, stamp, floor)
        if self.sink is None and self.status:
            self._check_size()
        return complete, marks

    def _check_size(self) -> None:
        """Limit what is kept, whatever a server sends: otherwise reading it could exceed any time limit."""
        size = len(self.body)
        if size + (self.left or 0) > _BODY_LIMIT:
            raise Malformed(f"the answer has more than {_BODY_LIMIT >> 20} MiB")
        if self._events and size - self._line > _EVENT_LIMIT:
            self._line = self.body.rfind(b"\n") + 1
            if size - self._line > _EVENT_LIMIT:
                raise Malformed(f"a line of the stream has more than {_EVENT_LIMIT >> 20} MiB")

    def feed_sink(self, data: bytes | memoryview) -> bool:
        """Do the same as `feed`, once the head has arrived and there is a sink."""
        assert self.sink is not None
        if self._chunked:
            complete = self._dechunk(bytes(data))
            data = bytes(self.body)
            self.body.clear()
        elif self.left is None:
            complete = False
        else:
            self.closing |= len(data) > self.left
            data = data[: self.left]
            self.left -= len(data)
            complete = not self.left
        if data:
            self.sunk += len(data)
            self.sink(data)
        return complete

    def _parse_head(self) -> bool:
        while not self.status:  # interim answers come before the real one
            if not self._pending.startswith(b"HTTP/1."[: len(self._pending)]):
                raise Malformed(f"not an HTTP answer: {self._pending[:60]!r}")
            end = self._pending.find(b"\r\n\r\n")
            if end < 0:
                if len(self._pending) > _HEAD_LIMIT:
                    raise Malformed("the header of the answer does not end")
                return False
            text, self._pending = self._pending[:end], self._pending[end + 4 :]
            head = read_head(text)
            if head.status >= 200:
                self.status, self._chunked, self.left, self.closing, self._events = head
                self.head = text
                if self._chunked:
                    self.left = _SIZE
        return True

    def _dechunk(self, data: bytes) -> bool:
        if self._pending:
            data, self._pending = self._pending + data, b""
        at, end, left, body = 0, len(data), self.left or 0, self.body
        if left == _SIZE:
            at, content, _ = whole_chunks(data, b"", 0)
            body += content
            if data[at:] == _LAST:  # as nearly every stream ends
                return True
        while at < end:
            if left > 0:  # inside the content of a chunk
                part = data[at : at + left]
                body += part
                at, left = at + len(part), left - len(part) or _LINE_END
                continue
            if left == _LINE_END:
                if end - at < 2:
                    self._pending = data[at:]
                    break
                if not data.startswith(b"\r\n", at):
                    raise _too_long(data[at:])
                at, left = at + 2, _SIZE
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if end - at > _LINE_LIMIT:
                    raise Malformed("a line between the chunks of the answer does not end")
                self._pending = data[at:]
                break
            start = line_end + 2
            if left == _TRAILERS:
                if line_end == at:
                    self.closing |= start < end
                    return True
                at = start
                continue
            size = chunk_size(data[at:line_end])
            if start + size + 2 <= end and size:  # the whole chunk has arrived
                if not data.startswith(b"\r\n", start + size):
                    raise _too_long(data[start + size :])
                body += data[start : start + size]
                at = start + size + 2
            else:
                at, left = start, size or _TRAILERS
        self.left = left
        return False


@lru_cache(maxsize=256)  # most answers of a server have the same head, except for its date
def read_head(head: bytes) -> Head:
    """Parse a head. Raises Malformed if it is not HTTP/1.1."""
    start = _START.match(head)
    if start is None or start[2] == b"101":
        raise Malformed(f"not an HTTP answer: {head[:60]!r}")
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _FIELD.findall(head):
        fields.setdefault(name.lower(), []).append(value.strip().lower())
    status = int(start[2])
    options = {option.strip() for value in fields.get(b"connection", ()) for option in value.split(b",")}
    closing = b"close" in options or (start[1] == b"0" and b"keep-alive" not in options)
    events = any(kind.startswith(b"text/event-stream") for kind in fields.get(b"content-type", ()))
    if status in (204, 304) or status < 200:
        return Head(status, False, 0, closing, events)
    coding = b", ".join(fields.get(b"transfer-encoding", ()))
    if coding:
        if coding != b"chunked":
            raise Malformed(f"transfer-encoding is {coding[:40]!r}, and only chunked is supported")
        return Head(status, True, None, closing, events)
    lengths = set(fields.get(b"content-length", ()))
    if not lengths:
        return Head(status, False, None, True, events)
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 15:
        raise Malformed(f"content-length is {length[:40]!r}{' and something else' if lengths else ''}")
    return Head(status, False, int(length), closing, events)


def chunk_size(line: bytes) -> int:
    match = _CHUNK.fullmatch(line)
    if match is None:
        raise Malformed(f"a chunk of the answer has no size: {line[:40]!r}")
    return int(match[1], 16)


def _too_long(rest: bytes) -> Malformed:
    return Malformed(f"a chunk of the answer does not end where its size says: {rest[:20]!r}")
