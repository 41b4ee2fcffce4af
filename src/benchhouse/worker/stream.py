"""One component's output on its way to its log: redacted, capped in size, and recorded line by line in the journal.

The filter gets many whole lines at a time: a secret contains no line end, so it is found however it was written. Only a
private key has several lines; from its first line on, they are held until its last.
"""

import re
from collections.abc import Callable

from benchhouse.worker.journal import LINE_BYTES, ComponentJournal, LogFile

RING_BYTES = 64 << 10
_LONG_LINE_BYTES = 32 << 10  # a line is held until it ends, up to this size
_KEY_BYTES = 16 << 10  # a private key is held up to this size; both together fit the ring
_SECRET_BYTES = 4 << 10  # the longest secret that is searched for when a line must be split
_STEP = 61  # between places where a line may be split: prime, so that no regular pattern avoids all of them

Redact = Callable[[str], str]
_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z ]*PRIVATE KEY-----")


def whole_lines(data: bytes, end: int) -> int:
    """Return where the last whole line before `end` ends, or before a private key that is not complete."""
    end = data.rfind(b"\n", 0, end) + 1
    key = data.rfind(b"-----BEGIN ", 0, end)
    if key >= 0 and end - key < _KEY_BYTES and _KEY_BEGINS.match(data, key) and not _KEY_ENDS.search(data, key, end):
        return data.rfind(b"\n", 0, key) + 1
    return end


def whole_beginning(data: bytes) -> int:
    """Return where text without its beginning can be shown from: after a possible rest of a secret."""
    key = _KEY_ENDS.search(data)
    if key and not _KEY_BEGINS.search(data, 0, key.start()):
        return key.end()
    line = data.find(b"\n", 0, _SECRET_BYTES)
    return line + 1 if line >= 0 else _SECRET_BYTES


class PipeReader:
    """One or more pipes of a component: the raw log, the lines for the journal, and the last bytes received."""

    def __init__(self, name: str, sink: LogFile, page: ComponentJournal, cap_bytes: int, redact: Redact) -> None:
        self.sink = sink
        self._name = name
        self._page = page
        self._room = cap_bytes
        self._redact = redact
        self._full = False  # from then on, output is only drained and counted
        self._total = 0
        self._kept = 0  # bytes of input that the raw log covers
        self._recent = bytearray()
        self._pending = b""
        self._begun = False  # whether the start of a long line is already in the journal

    def feed(self, buffer: bytearray, size: int) -> None:
        """Process `buffer[:size]`; the buffer may be reused afterwards."""
        view = memoryview(buffer)[:size]
        self._total += size
        self._recent += view[-RING_BYTES:]
        if len(self._recent) > 2 * RING_BYTES:
            del self._recent[:-RING_BYTES]
        if self._full or self._page.full:
            self._page.leave_out(buffer.count(b"\n", 0, size), size)
        if self._full:
            self._pending = b""
            return
        data = self._pending + view
        end = whole_lines(data, len(data))
        if len(data) - end > _LONG_LINE_BYTES + _KEY_BYTES:
            end = self._within_line(data)
        if end:
            self._take(data[:end])
        self._pending = data[end:]

    def _within_line(self, data: bytes) -> int:
        """Return where a long line can be split: not inside a secret, nor inside the beginning of an incomplete one."""
        last = len(data) - _SECRET_BYTES
        for at in range(last, last - _SECRET_BYTES, -_STEP):
            left, right = data[at - _SECRET_BYTES : at], data[at : at + _SECRET_BYTES]
            if self._clean(left) + self._clean(right) == self._clean(left + right):
                return at
        return last

    def _take(self, data: bytes) -> None:
        clean = self._clean(data)
        self._write(data, clean)
        ended = data.endswith(b"\n")
        if not self._page.full:
            lines = clean.split(b"\n")
            if ended:
                lines.pop()
            if lines := lines[1:] if self._begun else lines:
                self._page.add(self._name, lines)
        self._begun = not ended

    def _write(self, data: bytes, clean: bytes) -> None:
        """Write everything, or the whole lines that fit; later output only goes to the ring."""
        end = len(data)
        if len(clean) > self._room:
            self._full = True
        while len(clean) > self._room:
            end = whole_lines(data, max(0, end - (len(clean) - self._room)))
            clean = self._clean(data[:end])
        if self.sink.write(clean):
            self._room -= len(clean)
            self._kept += end
        else:
            self._full = True

    def _clean(self, data: bytes) -> bytes:
        """Return the data redacted. Bytes that are not UTF-8 pass through unchanged."""
        return self._redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _last(self, size: int) -> bytes:
        """Return up to `size` of the newest bytes, redacted; if there were more, from the first place where that is
        safe."""
        data = bytes(self._recent[-min(size, RING_BYTES) :]) if size else b""
        return self._clean(data[whole_beginning(data) :] if len(data) < size else data)

    def tail(self, n_lines: int) -> list[str]:
        lines = self._last(self._total).decode("utf-8", "replace").rstrip("\n").split("\n")
        return [line[:LINE_BYTES] for line in lines[-n_lines:]] if n_lines > 0 and any(lines) else []

    def close(self) -> None:
        if self._pending and not self._page.full:
            lines = self._clean(self._pending).split(b"\n")
            if lines := [line for at, line in enumerate(lines) if at or not self._begun]:
                self._page.add(self._name, lines)
        overflow = self._total - self._kept
        end = self._last(overflow)
        lost = max(0, overflow - RING_BYTES)
        self.sink.write((b"\n[... %d bytes not kept ...]\n" % lost if lost else b"") + end)
        self.sink.close()
