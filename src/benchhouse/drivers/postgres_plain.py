"""Driver `postgres_pq` where one thread keeps all connections busy: messages of our own, where nothing is encrypted.

libpq connects and logs in; from then on its socket is ours. Where that is encrypted, libpq's calls go on.
"""

import os
import select
from typing import Any

from benchhouse.drivers.postgres_pq import PostgresPq, Ready, wait
from benchhouse.drivers.postgres_wire import Answer, query, refuse_copy
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Work

_AT_ONCE = 8192  # bytes that are read: most answers are shorter, and a larger buffer costs more than they do
_MORE = 1 << 18
_UNASKED_S = 5.0  # for the rest of a message that has begun


class PostgresPlain(PostgresPq):
    """A wire driver; what it is asked and what it answers is the same as of `PostgresPq`."""

    plain = False  # whether the socket is ours
    _fd = -1
    _step: Ready  # that was sent
    _reader: Answer  # of this connection

    def open(self) -> None:
        super().open()
        self._fd, self._reader, self.plain = self._connection.socket, Answer(), _is_plain(self._connection)

    def send(self, item: Work) -> None:
        if not self.plain:
            super().send(item)
            return
        self.calls += 1
        self._steps = steps = item.ready
        self._at, self._rows = 1, 0
        self._step = step = steps[0]
        self._write(step.message)

    def take(self) -> int | None:
        if not self.plain:
            return super().take()
        step = self._step
        try:
            data = os.read(self._fd, _AT_ONCE)
        except OSError as error:
            if isinstance(error, BlockingIOError):
                return None
            raise self._gone(error) from None
        if data.endswith(step.ends) and not self._reader.rest:  # mostly; the rest takes its time
            rows: int | None = step.rows
        else:
            rows = self._take_apart(data)
        if rows is None:
            return None
        self._rows += rows
        if self._at < len(self._steps):
            self._step = self._steps[self._at]
            self._at += 1
            self._write(self._step.message)
            return None
        self.calls += 1
        return self._rows

    def received(self, item: Work, data: bytes) -> int | None:
        self._step = item.ready[0]
        self.calls += 1
        rows = self._take_apart(data)
        self.calls += 1
        return rows

    def _write(self, data: bytes) -> None:
        """All of it. What the socket has no room for waits for the server, which may have something to say first."""
        try:
            sent = os.write(self._fd, data)
            while sent < len(data):
                if wait(self._fd, select.POLLIN | select.POLLOUT) & select.POLLOUT:
                    sent += os.write(self._fd, memoryview(data)[sent:])
                elif more := os.read(self._fd, _MORE):
                    self._reader.rest += more
                else:
                    raise ConnectionResetError
        except OSError as error:
            raise self._gone(error) from None

    def _take_apart(self, data: bytes) -> int | None:
        """The rows, once the answer is whole: it is an error, or has come in pieces, or its end was not known."""
        reader, expected = self._reader, self._step.rows
        try:
            if not data:
                raise ConnectionResetError
            rows = reader.take(data if len(data) < _AT_ONCE else data + self._more())
            if rows is not None:
                self._hear_out()
            if rows is not None and rows != expected and expected is not None:
                raise CallFailed("wrong_rows", f"{rows} rows instead of {expected}")
        except OSError as error:
            raise self._gone(error) from None
        except CallFailed:
            self._clean_up()
            self.calls += 1
            raise
        if reader.wants_copy:
            reader.wants_copy = False
            self._write(refuse_copy(extended=self._step.extended))
        return rows

    def _hear_out(self) -> None:
        """What the server says unasked behind an answer, to its end: the next bytes are those of the next answer."""
        data = b""
        while self._reader.rest:
            self._reader.skim(data)
            if self._reader.rest:
                data = os.read(self._fd, _AT_ONCE) if wait(self._fd, select.POLLIN, _UNASKED_S) else b""
                if not data:
                    raise ConnectionResetError

    def _more(self) -> bytes:
        try:
            return os.read(self._fd, _MORE)
        except BlockingIOError:
            return b""

    def _gone(self, error: Exception) -> CallFailed:
        """The server's last words, where it had any."""
        words = self._reader.failed if self.plain else None
        gone = super()._gone(error)
        return words or gone

    def _clean_up(self) -> None:
        if not self.plain:
            super()._clean_up()
        elif self._reader.broken:
            self.close()
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        try:
            self._hear_out()
            if not self._reader.in_transaction:
                return
            self._write(query(b"ROLLBACK"))
            done = None
            while done is None:
                wait(self._fd, select.POLLIN)
                data = os.read(self._fd, _AT_ONCE)
                if not data:
                    raise ConnectionResetError
                done = self._reader.take(data)
        except (OSError, CallFailed):
            self.close()

    def close(self) -> None:
        super().close()
        self.plain, self._fd = False, -1


def _is_plain(connection: Any) -> bool:
    try:
        return not (connection.ssl_in_use or connection.used_gssapi)
    except Exception:  # noqa: BLE001 - a libpq that can't tell
        return False
