"""The child's stdout and stderr: always drained, kept within a cap, and told line by line in `logs/trial.jsonl`."""

import contextlib
import fcntl
import json
import os
import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAP_BYTES = 8 << 20
RING_BYTES = 64 << 10
LINE_BYTES = 8 << 10
NOTE_BYTES = 1 << 20  # on top of the cap: the worker's own words survive a chatty experiment
_PIPE_BYTES = 1 << 20
_READ_BYTES = 256 << 10  # at once; split into empty lines this already makes a list of 2 MiB
_LONG_LINE_BYTES = 1 << 20  # with redaction a line is held until it ends, up to here
_CUT_MARGIN_BYTES = 4 << 10  # a secret that straddles the cut of such a line goes with it
_SHORT_LINE_BYTES = 8  # with redaction no line counts for less, which bounds the calls to the filter
_BREATH_S = 0.001

Redact = Callable[[str], str]
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str, allow_nan=False).encode


def _stamp(now_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1000) % 1000:03d}Z"


class _Sink:
    """A log file. A disk that is full is remembered in `trouble`, never raised."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.trouble: str | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def write(self, data: bytes | memoryview) -> bool:
        """All or nothing: a write that fails half-way is cut off again, so that no torn line is left behind."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            self._remember(error)
            try:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            except OSError:
                self.size += done
            return False
        self.size += done
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                os.close(fd)
        except OSError as error:  # network file systems report a full quota only here
            self._remember(error)

    def _remember(self, error: OSError) -> None:
        self.trouble = self.trouble or f"{self.path.name}: {error.strerror}"


class _Journal:
    """`trial.jsonl`: one JSON object a line, from both streams and from the worker."""

    def __init__(self, sink: _Sink, trial_id: str, cap_bytes: int, clock: Callable[[], float]) -> None:
        self.sink = sink
        self.full = False
        self._trial_id = trial_id
        self._clock = clock
        self._room = cap_bytes
        self._note_room = NOTE_BYTES
        self._lines_left_out = 0
        self._bytes_left_out = 0

    def add(self, stream: str, lines: list[bytes]) -> None:
        """Lines that came in together, without their line ends."""
        start = {"time": _stamp(self._clock()), "trial_id": self._trial_id, "component": "experiment", "stream": stream}
        head = _encode(start)[:-1] + ',"line":'
        rows: list[bytes] = []
        for at, line in enumerate(lines):
            cut = len(line) > LINE_BYTES
            text = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            row = (head + _encode(text) + (',"cut":true}\n' if cut else "}\n")).encode("utf-8", "replace")
            if len(row) > self._room:
                self.full = True
                self.leave_out(len(lines) - at, sum(map(len, lines[at:])) + len(lines) - at)
                break
            self._room -= len(row)
            rows.append(row)
        if rows and not self.sink.write(b"".join(rows)):
            self.full = True
            self.leave_out(len(rows), sum(map(len, lines[: len(rows)])) + len(rows))

    def leave_out(self, lines: int, size: int) -> None:
        self._lines_left_out += lines
        self._bytes_left_out += size

    def note(self, fields: dict[str, Any], *, last: bool = False) -> None:
        row = {"time": _stamp(self._clock()), "trial_id": self._trial_id, "component": "worker"} | fields
        try:
            text = _encode(row)
        except (ValueError, TypeError):  # NaN is no JSON, nor is a tuple a key
            text = _encode({key: value if isinstance(value, str) else repr(value) for key, value in row.items()})
        data = text.encode("utf-8", "replace") + b"\n"
        self._note_room -= len(data)
        if (self._note_room < 0 and not last) or not self.sink.write(data):
            self.leave_out(1, len(data))

    def close(self) -> None:
        if self._lines_left_out:
            message = (
                f"{self._lines_left_out} lines ({self._bytes_left_out} bytes) are not kept in {self.sink.path.name}"
            )
            counts = {"lines_left_out": self._lines_left_out, "bytes_left_out": self._bytes_left_out}
            self.note({"level": "warning", "message": message} | counts, last=True)
        self.sink.close()


class _Stream:
    """One pipe: its raw log, its lines on their way to the journal, and the last bytes that came through."""

    def __init__(self, name: str, sink: _Sink, journal: _Journal, cap_bytes: int, redact: Redact | None) -> None:
        self.name = name
        self.sink = sink
        self._journal = journal
        self._room = cap_bytes
        self._redact = redact
        self._raw_full = False
        self._total = 0
        self._consumed = 0  # bytes of input that the raw log stands for
        self._recent = bytearray()
        self._partial = b""
        self._skipping = False  # inside a line whose beginning was already cut and told

    def feed(self, buffer: bytearray, size: int) -> None:
        """Takes `buffer[:size]`; the buffer may be reused afterwards."""
        view = memoryview(buffer)[:size]
        self._total += size
        self._recent += view[-RING_BYTES:]
        if len(self._recent) > 2 * RING_BYTES:
            del self._recent[:-RING_BYTES]
        if self._redact is None and not self._raw_full:
            piece = view[: self._room - self._consumed]
            written = self.sink.write(piece)
            self._consumed += len(piece) if written else 0
            self._raw_full = not written or len(piece) < size
        if self._journal.full:
            self._journal.leave_out(buffer.count(b"\n", 0, size), size)
        if self._journal.full and (self._raw_full or self._redact is None):
            self._partial = b""
            return
        if not self._skipping or buffer.find(b"\n", 0, size) >= 0:
            self._split(self._partial + view)
        elif self._redact is not None and not self._raw_full:
            self._consumed += size

    def _split(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if self._skipping and lines:
            self._consume(len(lines.pop(0)) + 1)
            self._skipping = False
        bound = LINE_BYTES if self._redact is None else _LONG_LINE_BYTES
        if len(rest) > bound:
            lines.append(rest)
            rest = b""
            self._skipping = True
        self._partial = rest
        if lines:
            self._tell(lines, unfinished=self._skipping)

    def _tell(self, lines: list[bytes], *, unfinished: bool) -> None:
        shown = lines
        if self._redact is not None:
            shown = [self._clean(line) for line in lines] if not (self._raw_full and self._journal.full) else []
            self._write_clean(lines, shown, unfinished=unfinished)
        if not self._journal.full:
            self._journal.add(self.name, shown)

    def _write_clean(self, lines: list[bytes], clean: list[bytes], *, unfinished: bool) -> None:
        """Whole redacted lines in one write, as many as fit; the rest is left to the ring."""
        if self._raw_full:
            return
        fits = 0
        for line in clean:
            self._room -= max(len(line) + 1, _SHORT_LINE_BYTES)
            if self._room < 0:
                break
            fits += 1
        if fits and not self.sink.write(b"\n".join(clean[:fits]) + b"\n"):
            self._raw_full = True
            return
        self._consume(sum(map(len, lines[:fits])) + fits - (1 if unfinished and fits == len(lines) else 0))
        self._raw_full = fits < len(clean)

    def _consume(self, size: int) -> None:
        if self._redact is not None and not self._raw_full:
            self._consumed += size

    def _clean(self, line: bytes) -> bytes:
        """The line after redaction. Bytes that are no UTF-8 pass through unharmed."""
        if self._redact is None or not line:
            return line
        text = self._redact(line[:_LONG_LINE_BYTES].decode("utf-8", "surrogateescape"))
        clean = text.encode("utf-8", "surrogateescape")
        return clean if len(line) <= _LONG_LINE_BYTES else clean[:-_CUT_MARGIN_BYTES] + b" [... line cut ...]"

    def _last(self, size: int) -> bytes:
        """Up to `size` of the newest bytes, before redaction; with it, a line whose beginning is gone is left out."""
        data = bytes(self._recent[-min(size, RING_BYTES) :]) if size else b""
        return data.partition(b"\n")[2] if self._redact is not None and len(data) < size else data

    def _clean_lines(self, data: bytes) -> bytes:
        return data if self._redact is None else b"\n".join(map(self._clean, data.split(b"\n")))

    def tail(self, n_lines: int) -> list[str]:
        lines = self._clean_lines(self._last(self._total)).decode("utf-8", "replace").rstrip("\n").split("\n")
        return [line[:LINE_BYTES] for line in lines[-n_lines:]] if n_lines > 0 and any(lines) else []

    def close(self) -> None:
        if self._partial and not self._journal.full:
            self._journal.add(self.name, [self._clean(self._partial)])
        overflow = self._total - self._consumed
        end = self._last(overflow)
        lost = overflow - len(end)
        self.sink.write((b"\n[... %d bytes not kept ...]\n" % lost if lost else b"") + self._clean_lines(end))
        self.sink.close()


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are neither 0, 1 nor 2, even when the worker was started with those closed."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends]
    for end in ends:
        os.close(end)
    # An unprivileged user has a quota on pipe memory; the default size only costs more wake-ups.
    with contextlib.suppress(OSError):
        fcntl.fcntl(high[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(high[0], False)
    return high[0], high[1]


class Capture:
    """Call order: `open`, fork, `child_side` in the child, `parent_side` in the parent, `pump`..., `close`.

    Flush sys.stdout and sys.stderr before the fork, or what they held is logged as the child's.
    """

    def __init__(self, streams: dict[str, _Stream], journal: _Journal, redact: Redact | None) -> None:
        self._streams = streams
        self._journal = journal
        self._redact = redact
        self._readers: dict[int, _Stream] = {}
        self._writers: list[int] = []
        self._buffer = bytearray(_READ_BYTES)
        self._last_read_s = 0.0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        for stream in streams.values():
            reader, writer = _pipe()
            self._readers[reader] = stream
            self._writers.append(writer)
            self._selector.register(reader, selectors.EVENT_READ)

    @classmethod
    def open(
        cls,
        folder: Path,
        trial_id: str,
        cap_bytes: int = CAP_BYTES,
        *,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> "Capture":
        """Makes `folder/logs`, the three files in it, and the pipes; `cap_bytes` holds for each file by itself."""
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        journal = _Journal(_Sink(logs / "trial.jsonl"), trial_id, cap_bytes, clock)
        streams = {
            name: _Stream(name, _Sink(logs / f"{name}.log"), journal, cap_bytes, redact)
            for name in ("stdout", "stderr")
        }
        return cls(streams, journal, redact)

    @property
    def trouble(self) -> str | None:
        """The first thing that kept a log from being written, such as a full disk."""
        sinks = [*(stream.sink for stream in self._streams.values()), self._journal.sink]
        return next((sink.trouble for sink in sinks if sink.trouble), None)

    def child_side(self) -> None:
        """In the child: stdout and stderr become the pipes, and everything of the worker's is closed."""
        for writer, target in zip(self._writers, (1, 2), strict=True):
            os.dup2(writer, target)
        self.parent_side()
        self._close_readers()
        for stream in self._streams.values():
            stream.sink.close()
        self._journal.sink.close()
        self._closed = True

    def parent_side(self) -> None:
        """In the worker, after the fork: lets go of the write ends, so that EOF can arrive."""
        while self._writers:
            os.close(self._writers.pop())

    def filenos(self) -> tuple[int, ...]:
        """The read ends still open, for a selector of the supervisor's own."""
        return tuple(self._readers)

    def pump(self, timeout_s: float) -> bool:
        """Waits up to `timeout_s` for output and takes at most 256 KiB of each stream; False once both have ended.

        True with nothing read is normal: a grandchild may hold the pipe for ever, so never wait for False alone.
        """
        if not self._readers:
            return False
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            self._read(key.fd)
        return bool(self._readers)

    def drain(self, quiet_s: float = 0.0, limit_s: float = 5.0) -> bool:
        """Pumps until both streams end (True), are silent for `quiet_s`, or `limit_s` is over (False)."""
        until = time.monotonic() + limit_s
        while self._readers and time.monotonic() < until:
            ready = self._selector.select(quiet_s)
            if not ready:
                break
            for key, _ in ready:
                self._read(key.fd)
        return not self._readers

    def _read(self, reader: int) -> None:
        try:
            size = os.readv(reader, [self._buffer])
        except BlockingIOError:
            return
        if size:
            self._readers[reader].feed(self._buffer, size)
            self._breathe(size)
        else:
            self._forget(reader)

    def _breathe(self, size: int) -> None:
        """Small pieces in close succession cost a wake-up each: a millisecond lets the pipe fill instead."""
        now = time.monotonic()
        if size < _READ_BYTES // 4 and now - self._last_read_s < _BREATH_S:
            time.sleep(_BREATH_S)
        self._last_read_s = now

    def _forget(self, reader: int) -> None:
        self._selector.unregister(reader)
        del self._readers[reader]
        os.close(reader)

    def _close_readers(self) -> None:
        # Closing an epoll descriptor is safe on both sides of a fork; unregistering in the child would reach the
        # parent's, which is the same kernel object.
        self._selector.close()
        for reader in self._readers:
            os.close(reader)
        self._readers.clear()

    def note(self, level: str, message: str, **fields: Any) -> None:
        """Appends an event of the worker's to trial.jsonl; text is redacted like the experiment's lines."""
        row: dict[str, Any] = {"level": level, "message": message} | fields
        if self._redact is not None:
            row = {key: self._redact(value) if isinstance(value, str) else value for key, value in row.items()}
        self._journal.note(row)

    def tail(self, n_lines: int) -> str:
        """The last lines of stderr, then of stdout, for an error message; at most `n_lines` of each."""
        return "\n".join(self._streams["stderr"].tail(n_lines) + self._streams["stdout"].tail(n_lines))

    def close(self) -> None:
        """Writes the kept ends and closes the files; output that comes later meets a closed pipe. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.parent_side()
        self._close_readers()
        for stream in self._streams.values():
            stream.close()
        self._journal.close()
