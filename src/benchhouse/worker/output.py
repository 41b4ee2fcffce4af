"""Everything that a trial's processes print: drained, redacted, capped in size, and recorded line by line in the
journal."""

import contextlib
import fcntl
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchhouse.schema.components import CAP_BYTES, EXPERIMENT, check_component
from benchhouse.schema.secrets import redact_keys
from benchhouse.worker import server_logs
from benchhouse.worker.journal import Journal, LogFile
from benchhouse.worker.stream import PipeReader, Redact

MOST_PIPES = 100
_PIPE_BYTES = 1 << 20
_READ_BYTES = 256 << 10  # per read; split into empty lines this already makes a list of 2 MiB
_READS_FOR_TAIL = 64
_BREATH_S = 0.001


def _pipe() -> tuple[int, int]:
    """Return a pipe whose ends are not 0, 1, or 2, even if the worker was started with those closed."""
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
    """The logs of a trial, or of services that run on their own. It is the Logs object of its holder.

    Call order for a trial: `begin`, fork, `child_side` in the child, `parent_side` in the parent, `pump`..., `close`.
    Flush sys.stdout and sys.stderr before the fork, otherwise their buffers are logged as the child's.
    """

    def __init__(self, folder: Path, journal: Journal, cap_bytes: int, redact: Redact) -> None:
        self._folder = folder
        self._journal = journal
        self._cap_bytes = cap_bytes
        self._redact = redact
        self._streams: dict[str, PipeReader] = {}  # by file name
        self._readers: dict[int, PipeReader] = {}
        self._writers: list[int] = []  # of the child's stdout and stderr, until the fork
        self._buffer = bytearray(_READ_BYTES)
        self._last_read_s = 0.0
        self._closed = False
        self._lock = threading.RLock()  # between `pumping` and a caller that opens a component or reads its tail
        self._selector = selectors.DefaultSelector()
        self._requests, self._requester = server_logs.pair()
        self._selector.register(self._requests, selectors.EVENT_READ)

    @classmethod
    def begin(
        cls,
        folder: Path,
        trial_id: str,
        cap_bytes: int = CAP_BYTES,
        *,
        redact: Redact = redact_keys,
        streams: Sequence[str] = ("stdout", "stderr"),
    ) -> "Capture":
        """Create `folder/logs` with trial.jsonl, and the pipes of a child's streams: () if there is no child.

        `cap_bytes` applies to each log separately, and to each component in trial.jsonl.
        """
        logs = folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        made = cls(logs, Journal(LogFile(logs / "trial.jsonl"), trial_id, cap_bytes), cap_bytes, redact)
        made._writers = [made._pipe_into(made._stream(EXPERIMENT, name, name)) for name in streams]
        return made

    def open(self, component: str) -> int:
        """Return the write end of a pipe into `logs/<component>.log`; the caller closes it. A second call appends."""
        check_component(component)
        with self._lock:
            if self._closed:
                raise OSError("the logs are closed")
            if len(self._readers) >= MOST_PIPES:
                raise OSError(f"more than {MOST_PIPES} logs at once")
            return self._pipe_into(self._stream(component, component, "output"))

    def _stream(self, component: str, file: str, name: str) -> PipeReader:
        if file not in self._streams:
            sink = LogFile(self._folder / f"{file}.log")
            self._streams[file] = PipeReader(name, sink, self._journal.page(component), self._cap_bytes, self._redact)
        return self._streams[file]

    def _pipe_into(self, stream: PipeReader) -> int:
        reader, writer = _pipe()
        self._readers[reader] = stream
        self._selector.register(reader, selectors.EVENT_READ)
        return writer

    @property
    def trouble(self) -> str | None:
        """The first problem that prevented a log from being written, such as a full disk."""
        sinks = [*(stream.sink for stream in self._streams.values()), self._journal.sink]
        return next((sink.trouble for sink in sinks if sink.trouble), None)

    def child_side(self) -> server_logs.ServerLogs:
        """In the child, replace stdout and stderr with the pipes, and close everything that belongs to the worker.

        The returned object opens logs for the services that the child starts.
        """
        for writer, target in zip(self._writers, (1, 2), strict=True):
            os.dup2(writer, target)
        requester = socket.socket(fileno=fcntl.fcntl(self._requester, fcntl.F_DUPFD_CLOEXEC, 3))
        self.parent_side()
        self._close_readers()
        for stream in self._streams.values():
            stream.sink.close()
        self._journal.sink.close()
        self._closed = True
        return server_logs.ServerLogs(requester)

    def child_ends(self) -> list[int]:
        """Return what to send to a child that was not forked from here: stdout, stderr, and the socket for log
        requests."""
        return [*self._writers, self._requester.fileno()]

    def parent_side(self) -> None:
        """In the worker, after the fork, close the child's ends, so that EOF can arrive."""
        self._requester.close()
        while self._writers:
            os.close(self._writers.pop())

    def filenos(self) -> tuple[int, ...]:
        """Return the descriptors to wait on, for the supervisor's own selector."""
        handle = self._requests.fileno()
        return (*self._readers, handle) if handle >= 0 else tuple(self._readers)

    def pump(self, timeout_s: float | None) -> bool:
        """Wait up to `timeout_s` (None: forever) for output, read at most 256 KiB from each pipe, and answer the child.

        Return False once all pipes have ended. True with nothing read is normal: a grandchild may hold a pipe forever,
        so never wait for False alone.
        """
        if not self._selector.get_map():
            return False
        self._take(self._selector.select(timeout_s and max(0.0, timeout_s)))
        return bool(self._readers)

    def drain(self, quiet_s: float = 0.0, limit_s: float = 5.0) -> bool:
        """Pump until all pipes end (True), are silent for `quiet_s`, or `limit_s` has passed (False)."""
        until = time.monotonic() + limit_s
        while self._readers and time.monotonic() < until:
            ready = self._selector.select(quiet_s)
            if not ready:
                break
            self._take(ready)
        return not self._readers

    @contextlib.contextmanager
    def pumping(self) -> Iterator[None]:
        """Pump in a thread, for a process that starts services but has no loop of its own."""
        wake, bell = _pipe()
        self._selector.register(wake, selectors.EVENT_READ)

        def work() -> None:
            ready = self._selector.select()
            while wake not in [key.fd for key, _ in ready]:
                self._take(ready)
                ready = self._selector.select()

        thread = threading.Thread(target=work, name="logs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.close(bell)
            thread.join()
            self._selector.unregister(wake)
            os.close(wake)
            self.drain(limit_s=1.0)

    def _take(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        size = 0
        with self._lock:
            for key, _ in ready:
                if key.fileobj is not self._requests:
                    size += self._read(key.fd)
                elif not server_logs.answer(self._requests, self):
                    self._selector.unregister(self._requests)
                    self._requests.close()
        if size:
            self._breathe(size)

    def _read(self, reader: int) -> int:
        if reader not in self._readers:  # ended while others of the same batch were read
            return 0
        try:
            size = os.readv(reader, [self._buffer])
        except BlockingIOError:
            return 0
        if size:
            self._readers[reader].feed(self._buffer, size)
        else:
            self._selector.unregister(reader)
            del self._readers[reader]
            os.close(reader)
        return size

    def _breathe(self, size: int) -> None:
        """Wait a millisecond after small pieces in close succession, so that the pipes fill; each piece costs a
        wake-up."""
        now = time.monotonic()
        if size < _READ_BYTES // 4 and now - self._last_read_s < _BREATH_S:
            time.sleep(_BREATH_S)
        self._last_read_s = now

    def _close_readers(self) -> None:
        # Both sides of a fork may share one epoll object; unregistering in the child would affect the parent's, which
        # is the same kernel object.
        self._selector.close()
        self._requests.close()
        for reader in self._readers:
            os.close(reader)
        self._readers.clear()

    def note(self, level: str, message: str, **fields: Any) -> None:
        """Append an event of the worker to trial.jsonl; its text is redacted like printed output."""
        row: dict[str, Any] = {"level": level, "message": message} | fields
        row = {key: self._redact(value) if isinstance(value, str) else value for key, value in row.items()}
        with self._lock:
            self._journal.note(row)

    def tail(self, component: str, n_lines: int) -> str:
        """Return the last lines of a component, including those still in its pipe; for the experiment, stderr comes
        first."""
        files = ("stderr", "stdout") if component == EXPERIMENT else (component,)
        with self._lock:
            streams = [self._streams[file] for file in files if file in self._streams]
            for reader in [reader for reader, stream in self._readers.items() if stream in streams]:
                for _ in range(_READS_FOR_TAIL):
                    if not self._read(reader):
                        break
            return "\n".join(line for stream in streams for line in stream.tail(n_lines))

    def close(self) -> None:
        """Write the kept ends and close the files; later output meets a closed pipe. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.parent_side()
            self._close_readers()
            for stream in self._streams.values():
                stream.close()
            self._journal.close()
