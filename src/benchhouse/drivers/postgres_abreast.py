"""Driver `postgres` where one thread keeps all connections busy: psycopg2's asynchronous ones, which can't COPY."""

import select
from collections.abc import Sequence
from time import monotonic
from typing import Any

from benchhouse.drivers.postgres import Postgres, asked, psycopg2_or_hint
from benchhouse.drivers.postgres_watch import WATCH
from benchhouse.load.protocols.calls import CallFailed
from benchhouse.load.protocols.postgres import Work, failure, not_connected

_DONE, _READING = 0, 1  # what `poll` says; psycopg2 never changes these numbers


class PostgresAbreast(Postgres):
    """An abreast driver; what it is asked and what it answers is the same as of `Postgres`."""

    _steps: Sequence[Any] = ()  # of the call under way
    _at = 0  # how many of them were sent
    _rows = 0  # of those that were answered

    def open(self) -> None:
        psycopg2 = psycopg2_or_hint()
        self._error = psycopg2.Error
        self._connection = connection = self._connect(psycopg2)
        self._cursor = connection.cursor()
        WATCH.add(self, connection.fileno(), self._timeout_s)
        self.calls += 1
        try:
            for item in self._prepares:
                self._cursor.execute(f"PREPARE {item.name} AS {item.numbered}")
                _finish(connection)
        except self._error as error:
            failed = failure(error.pgcode, str(error))
            self.close()
            raise failed from None
        finally:
            self.calls += 1

    def _connect(self, psycopg2: Any) -> Any:
        connection = None
        try:
            words, given = asked(self._login)
            connection = psycopg2.connect(words, async_=1, **given)
            if _finish(connection, monotonic() + self._login.timeout_s):
                return connection
            problem = "timeout expired"
        except psycopg2.Error as error:
            problem = str(error)
        if connection is not None:
            connection.close()
        raise not_connected(problem)

    def ask(self, item: Work) -> int:
        """The rows that it brought or changed. Waits, as no load has it do."""
        if self._connection is None:
            self.open()
        self.send(item)
        while (rows := self.take()) is None:
            _wait(self.fileno(), select.POLLIN, None)
        return rows

    def fileno(self) -> int:
        return self._connection.fileno() if self._connection is not None else -1

    def send(self, item: Work) -> None:
        self.calls += 1
        self._steps = steps = item.ready
        self._at, self._rows = 1, 0
        try:
            self._cursor.execute(steps[0][0])
        except self._error as error:
            self.calls += 1
            raise self._failed(error) from None

    def take(self) -> int | None:
        try:
            if self._connection.poll() != _DONE:
                return None
            changed, expected = self._cursor.rowcount, self._steps[self._at - 1][2]
            if changed != expected and expected is not None:
                raise CallFailed("wrong_rows", f"{changed} rows instead of {expected}")
            if changed > 0:
                self._rows += changed
            if self._at < len(self._steps):
                self._at += 1
                self._cursor.execute(self._steps[self._at - 1][0])
                return None
        except self._error as error:
            self.calls += 1
            raise self._failed(error) from None
        except CallFailed:
            self._roll_back()
            self.calls += 1
            raise
        self.calls += 1
        return self._rows

    def _roll_back(self) -> None:
        try:
            if self._connection.info.transaction_status != 0:
                self._cursor.execute("ROLLBACK")
                _finish(self._connection)
        except self._error:
            self.close()


def _finish(connection: Any, deadline: float | None = None) -> bool:
    """Wait until the connection is done with what it was asked; False where that took too long."""
    while (state := connection.poll()) != _DONE:
        left = None if deadline is None else max(deadline - monotonic(), 0)
        if not _wait(connection.fileno(), select.POLLIN if state == _READING else select.POLLOUT, left):
            return False
    return True


def _wait(fd: int, events: int, seconds: float | None) -> bool:
    """Until that can be done; False where it took too long. Not `select.select`, which knows a thousand connections."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
